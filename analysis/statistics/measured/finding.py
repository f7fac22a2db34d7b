"""One finding of the audit."""

import shlex
from dataclasses import dataclass

from fleetrank.analysis.stored.exclusions import cell_pattern
from fleetrank.foundation.vocabulary import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding of the audit.

    Attributes:
        platform_key: `None` if the finding is about a model on all its platforms.
        model: `None` if the finding is about the whole platform.
        figure: the observed value; `detail` explains it.
        wrong_cell: its sweep and the name of its model, which `model` may extend; `None` if the
            finding is not about one cell.
    """

    what: Problem
    platform_key: str | None
    model: str | None
    figure: float | None
    detail: str
    what_to_do: str
    wrong_cell: tuple[str, str] | None = None

    def command(self, workload: str) -> str | None:
        """The shell command that leaves the cell out of all figures; `None` without one."""
        if self.wrong_cell is None:
            return None
        sweep_id, model = self.wrong_cell
        pattern = cell_pattern(model, str(self.platform_key), workload)
        parts = ("fleetrank", "results", "exclude", sweep_id, "--only", pattern)
        return shlex.join((*parts, "--reason", self.what.value))
