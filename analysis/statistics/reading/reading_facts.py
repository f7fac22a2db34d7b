"""A measured cell of reading a text: its place, its figures and what is known of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.stored.cell_values import MIN_REPEATS
from fleetrank.foundation.wording import count_of
from fleetrank.foundation.workload import Workload, WorkloadKind


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFacts:
    """What stands beside the time of a cell: its memory, and the repeats behind it."""

    peak_memory_mib: float | None = None
    memory_metric: str | None = None
    n_repeats: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingCell:
    """One inference that reads tokens: a prompt or a segment of one sequence.

    Attributes:
        latency_ns: median over processes.
        draws_ns: (DRAWS,) medians of resampled processes; `None` below `MIN_REPEATS` of them.
        flops: `None` if not known.
    """

    workload: Workload
    latency_ns: float
    draws_ns: Floats | None
    facts: CellFacts
    flops: int | None

    @property
    def tokens(self) -> int:
        """New tokens that it reads."""
        return self.workload.length or 0

    @property
    def why_no_draws(self) -> str | None:
        """Why it has no interval."""
        if self.draws_ns is not None:
            return None
        repeats = count_of(self.facts.n_repeats, "repeat")
        return f"no interval: {repeats} of {self.workload}, at least {MIN_REPEATS} needed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingPlace:
    """One model on one platform at batch 1.

    Attributes:
        model: its name; of a name with several cards also the card, because these are several
            models.
        context: most tokens of one sequence; `None` if the rows do not state it.
        prompts: by length.
        segments: in the order of their workloads.
        failed: kind of the last error of workloads without a valid attempt, by their text.
        n_sweeps: sweeps that the cells are from.
        left_out: why workloads that were measured have no cell here, by their text.
    """

    model: str
    platform_key: str
    context: int | None
    prompts: Mapping[int, ReadingCell]
    segments: tuple[ReadingCell, ...]
    failed: Mapping[str, str]
    n_sweeps: int
    left_out: Mapping[str, str] = field(default_factory=dict)

    def why_not_at_once(self, tokens: int) -> str:
        """Why it has no prompt of so many tokens."""
        if self.context is not None and tokens > self.context:
            return f"beyond the context of {self.context:,} tokens"
        prompt = str(Workload(kind=WorkloadKind.PREFILL, length=tokens))
        if prompt in self.left_out:
            return self.left_out[prompt]
        end = self.failed.get(prompt)
        return f"not measured: {prompt}" + (f" ended with {end}" if end else "")
