"""One cell in two sweeps: the facts that differ, its test and its verdict."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.bootstrap import adjust_p
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.arrays.significance import MIN_PROCESSES, cliffs_delta, mann_whitney
from fleetrank.analysis.stored.columns import NS_PER_MS
from fleetrank.foundation.wording import count_of

MUST_BE_EQUAL = ("sample_kind", "origin")
"""If one of these differs, the figures are not comparable: no test is made."""
MAY_DIFFER = (
    "runtime_version", "runtime_settings", "artifact_sha256", "exporter_versions",
    "fleetrank_version", "git_commit", "host", "os", "cpu_model", "logical_cores", "governor",
    "clock_max_mhz", "python_version", "worker_affinity", "niceness", "omp_num_threads",
    "confinement",
)  # fmt: skip
"""Facts that most often explain a slower cell; threads and precision are in the key."""
FACTS = (*MUST_BE_EQUAL, *MAY_DIFFER)
_SHOWN = 60
"""Maximum letters of a value in a sentence; the rows have the full value."""


class Verdict(StrEnum):
    """The result of the comparison for one cell."""

    SLOWER = "slower"
    FASTER = "faster"
    UNDECIDED = "undecided"
    """Above the threshold and unlikely alone, but one such cell among many may be chance."""
    SAME = "same"
    REFUSED = "refused"
    """Measured in both sweeps, but not comparable or with too few processes for a test."""
    ONE_SIDED = "one_sided"
    """Measured in one of the two sweeps only."""


_ORDER = {verdict: number for number, verdict in enumerate(Verdict)}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCell:
    """One cell in one sweep.

    Attributes:
        medians_ns: latency of each process, (n_processes,), above 0.
        facts: each of `MUST_BE_EQUAL` and `MAY_DIFFER` as text, different values joined; empty if
            it is not known.
    """

    model: str
    platform_key: str
    medians_ns: Floats
    facts: Mapping[str, str]

    @property
    def place(self) -> tuple[str, str]:
        """Model and platform: the same in both sweeps, even if card or weights differ."""
        return self.model, self.platform_key


Cells = Mapping[str, MeasuredCell]
"""By cell key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCell:
    """The result for one cell; what cannot be compared has no figures, and a reason.

    Attributes:
        n_a, n_b: processes of each sweep.
        ratio: median of b over median of a.
        cliffs_delta: P(b slower) - P(b faster), -1 to 1.
        p_value: of the test of this cell alone; `p_adjusted` is over all tested cells.
    """

    verdict: Verdict
    model: str
    platform_key: str
    n_a: int | None = None
    n_b: int | None = None
    median_a_ms: float | None = None
    median_b_ms: float | None = None
    ratio: float | None = None
    cliffs_delta: float | None = None
    p_value: float | None = None
    p_adjusted: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One fact that differs in the second sweep; its values are those of the first cell."""

    fact: str
    value_a: str | None
    value_b: str | None
    n_cells: int

    @property
    def sentence(self) -> str:
        """The difference as a sentence for a note."""
        a, b = (_shown(value) for value in (self.value_a, self.value_b))
        cells = count_of(self.n_cells, "cell")
        return f"Differs in {cells}: {self.fact} was {a}, is {b}."

    def as_json(self) -> dict[str, object]:
        """The difference as JSON values."""
        return asdict(self)


def facts_of() -> list[pl.Expr]:
    """Expressions that give each fact of a group of rows as text, different values joined."""
    return [
        pl.col(name).cast(pl.String).drop_nulls().unique().sort().str.join(" | ").alias(name)
        for name in FACTS
    ]


def differing_facts(a: Cells, b: Cells) -> tuple[Difference, ...]:
    """Every fact that differs in a cell of both sides."""
    common = sorted(a.keys() & b.keys())
    found = []
    for fact in FACTS:
        cells = [key for key in common if a[key].facts[fact] != b[key].facts[fact]]
        if cells:
            first, second = (side[cells[0]].facts[fact] or None for side in (a, b))
            found.append(Difference(fact=fact, value_a=first, value_b=second, n_cells=len(cells)))
    return tuple(found)


def compare_cells(a: Cells, b: Cells, threshold: float, alpha: float) -> tuple[ComparedCell, ...]:
    """The verdict on each cell of both sweeps, the most important first.

    Args:
        a: cells of the baseline.
        b: cells of the sweep that may be slower.
        threshold: a smaller relative difference of medians is not a difference, above 0.
        alpha: false discovery rate over all tested cells.
    """
    both = [_tested(a[key], b[key]) for key in sorted(a.keys() & b.keys())]
    adjusted = adjust_p([cell.p_value for cell in both])
    judged = [_judged(cell, p, threshold, alpha) for cell, p in zip(both, adjusted, strict=True)]
    return tuple(sorted([*judged, *_alone(a, b)], key=_by_weight))


def _tested(a: MeasuredCell, b: MeasuredCell) -> ComparedCell:
    """The figures of a cell; its verdict is preliminary until p is adjusted over all cells."""
    middle = [float(np.median(cell.medians_ns)) for cell in (a, b)]
    n_a, n_b = a.medians_ns.size, b.medians_ns.size
    cell = ComparedCell(
        verdict=Verdict.REFUSED,
        model=a.model,
        platform_key=a.platform_key,
        n_a=n_a,
        n_b=n_b,
        median_a_ms=middle[0] / NS_PER_MS,
        median_b_ms=middle[1] / NS_PER_MS,
        ratio=middle[1] / middle[0],
    )
    differing = [
        f"{name}: {a.facts[name]} | {b.facts[name]}"
        for name in MUST_BE_EQUAL
        if a.facts[name] != b.facts[name]
    ]
    if differing:
        return replace(cell, reason="; ".join(differing))
    if min(n_a, n_b) < MIN_PROCESSES:
        few = count_of(min(n_a, n_b), "process", "processes")
        return replace(cell, reason=f"{few}, at least {MIN_PROCESSES} a side needed")
    _u, p_value = mann_whitney(a.medians_ns, b.medians_ns)
    delta = cliffs_delta(a.medians_ns, b.medians_ns)
    return replace(cell, verdict=Verdict.SAME, p_value=p_value, cliffs_delta=delta)


def _alone(a: Cells, b: Cells) -> list[ComparedCell]:
    """Models on platforms without a cell of the same key in both sweeps."""
    of_a, of_b = ({cell.place for cell in side.values()} for side in (a, b))
    compared = {a[key].place for key in a.keys() & b.keys()}
    found = []
    for model, platform in sorted((of_a | of_b) - compared):
        verdict, reason = Verdict.ONE_SIDED, "measured in one of the sweeps only"
        if (model, platform) in of_a & of_b:
            verdict, reason = Verdict.REFUSED, "model card, weights or exporter options differ"
        found.append(
            ComparedCell(verdict=verdict, model=model, platform_key=platform, reason=reason)
        )
    return found


def _judged(
    cell: ComparedCell, p_adjusted: float | None, threshold: float, alpha: float
) -> ComparedCell:
    ratio, p_value = cell.ratio, cell.p_value
    if ratio is None or p_value is None or p_adjusted is None:
        return cell
    cell = replace(cell, p_adjusted=p_adjusted)
    is_large = ratio >= 1 + threshold or ratio <= 1 / (1 + threshold)
    if is_large and p_adjusted <= alpha:
        return replace(cell, verdict=Verdict.SLOWER if ratio > 1 else Verdict.FASTER)
    if is_large and p_value <= alpha:
        reason = (
            "unlikely alone, but possible by chance among so many cells: measure with more repeats"
        )
        return replace(cell, verdict=Verdict.UNDECIDED, reason=reason)
    is_small = p_adjusted <= alpha
    return replace(cell, reason="a difference below the threshold" if is_small else None)


def _by_weight(cell: ComparedCell) -> tuple[int, float, str, str]:
    distance = 0.0 if cell.ratio is None else -abs(float(np.log(cell.ratio)))
    return _ORDER[cell.verdict], distance, cell.model, cell.platform_key


def _shown(value: str | None) -> str:
    if value is None:
        return "not known"
    return value if len(value) <= _SHOWN else f"{value[:_SHOWN]}..."
