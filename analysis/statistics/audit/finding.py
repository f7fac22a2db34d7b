"""One finding of the audit."""

import shlex
from dataclasses import dataclass, replace

from fleetrank.analysis.stored.exclusions import cell_pattern
from fleetrank.foundation.vocabulary import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFinding:
    """One finding of the audit.

    Attributes:
        platform_key: `None` if the finding is about a model on all its platforms.
        model: `None` if the finding is about the whole platform.
        figure: the observed value; `detail` explains it.
        command: of the shell, to leave the cell out of all figures; `None` without one.
        wrong_cell: its sweep and the name of its model, which `model` may extend; `None` if the
            finding is not about one cell.
    """

    what: Problem
    platform_key: str | None = None
    model: str | None = None
    figure: float | None = None
    detail: str
    what_to_do: str
    command: str | None = None
    wrong_cell: tuple[str, str] | None = None

    def with_command(self, workload: str) -> "AuditFinding":
        """The finding with its command, if it is about one cell."""
        if self.wrong_cell is None:
            return self
        sweep_id, model = self.wrong_cell
        pattern = cell_pattern(model, str(self.platform_key), workload)
        parts = ("fleetrank", "results", "exclude", sweep_id, "--only", pattern)
        return replace(self, command=shlex.join((*parts, "--reason", self.what.value)))
