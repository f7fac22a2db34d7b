"""One cell in two sweeps: the facts that differ, and its verdict."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.equivalence import Limits
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.comparison.changes import Change, Verdict, judge_changes
from fleetrank.analysis.stored.latency_statistic import STATISTIC
from fleetrank.foundation.units import NS_PER_MS
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
FACTS = (*MUST_BE_EQUAL, STATISTIC, *MAY_DIFFER)
"""A statistic that one side does not state is not a difference."""
_JOIN = " | "
_SHOWN = 60
"""Maximum letters of a value in a sentence; the rows have the full value."""


_ORDER = {verdict: number for number, verdict in enumerate(Verdict)}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCell:
    """One cell in one sweep.

    Attributes:
        medians_ns: latency of each process, (n_processes,), above 0.
        compared_ns: the same without the effects of the rounds in which models took turns.
        took_turns: it was measured in rounds.
        facts: each of `MUST_BE_EQUAL` and `MAY_DIFFER` as text, different values joined; empty if
            it is not known.
    """

    model: str
    platform_key: str
    workload: str
    medians_ns: Floats
    compared_ns: Floats
    took_turns: bool
    facts: Mapping[str, str]

    @property
    def place(self) -> tuple[str, str, str]:
        """Model, platform, workload: the same in both sweeps, even if card or weights differ."""
        return self.model, self.platform_key, self.workload


Cells = Mapping[str, MeasuredCell]
"""By cell key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCell(Change):
    """The result for one cell; what cannot be compared has no figures, and a reason.

    Attributes:
        statistic: what the latencies are, different ones joined; `None` if not stated.
    """

    model: str
    platform_key: str
    workload: str
    statistic: str | None = None
    median_a_ms: float | None = None
    median_b_ms: float | None = None


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
        pl.col(name).cast(pl.String).drop_nulls().unique().sort().str.join(_JOIN).alias(name)
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


def under_same_keys(a: Cells, b: Cells) -> Cells:
    """The cells of `b`, under the keys of `a` where both measured the same file on a platform.

    A key may come from an older version, which made it of other core numbers.
    """
    keys = {_file_on_platform(cell): key for key, cell in a.items() if key not in b}
    return {
        key if key in a else keys.get(_file_on_platform(cell), key): cell for key, cell in b.items()
    }


def _file_on_platform(cell: MeasuredCell) -> tuple[str, ...]:
    """What identifies a cell without its key; a cell without a file is only itself."""
    file = cell.facts["artifact_sha256"]
    return (*cell.place, file) if file else (str(id(cell)),)


def compare_cells(a: Cells, b: Cells, limits: Limits) -> tuple[ComparedCell, ...]:
    """The verdict on each cell of both sweeps, the most important first.

    Args:
        a: cells of the baseline.
        b: cells of the sweep that may be slower.
        limits: margin, and false discovery rate over all tested cells.
    """
    common = [(a[key], b[key]) for key in sorted(a.keys() & b.keys())]
    alike = [pair for pair in common if not _unlike(*pair)]
    changes = judge_changes(((one.compared_ns, other.compared_ns) for one, other in alike), limits)
    judged = [
        replace(_compared(*pair), **asdict(change))
        for pair, change in zip(alike, changes, strict=True)
    ]
    refused = [
        replace(_compared(*pair), reason=reason) for pair in common if (reason := _unlike(*pair))
    ]
    return tuple(sorted([*judged, *refused, *_alone(a, b)], key=_by_weight))


def _unlike(a: MeasuredCell, b: MeasuredCell) -> str:
    """The facts that differ but must be equal."""
    differing = [
        f"{name}: {a.facts[name]} | {b.facts[name]}"
        for name in MUST_BE_EQUAL
        if a.facts[name] != b.facts[name]
    ]
    statistics = _statistics(a, b)
    if len(statistics) > 1:
        differing.append(f"{STATISTIC}: {_JOIN.join(statistics)}")
    return "; ".join(differing)


def _compared(a: MeasuredCell, b: MeasuredCell) -> ComparedCell:
    """The figures that need no test."""
    median_a, median_b = (_median_ms(cell) for cell in (a, b))
    statistics = _statistics(a, b)
    return ComparedCell(
        verdict=Verdict.REFUSED,
        model=a.model,
        platform_key=a.platform_key,
        workload=a.workload,
        n_a=a.medians_ns.size,
        n_b=b.medians_ns.size,
        statistic=_JOIN.join(statistics) or None,
        median_a_ms=median_a,
        median_b_ms=median_b,
        ratio=_ratio(median_a, median_b) if len(statistics) < 2 else None,
    )


def _statistics(*cells: MeasuredCell) -> list[str]:
    """What the latencies of the cells are, each word once; empty if not stated."""
    words = {word for cell in cells for word in cell.facts[STATISTIC].split(_JOIN) if word}
    return sorted(words)


def _median_ms(cell: MeasuredCell) -> float | None:
    """The median of the processes; `None` if these are different statistics."""
    if len(_statistics(cell)) > 1:
        return None
    return float(np.median(cell.medians_ns)) / NS_PER_MS


def _ratio(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else b / a


def _alone(a: Cells, b: Cells) -> list[ComparedCell]:
    """Models on platforms, by workload, without a cell of the same key in both sweeps."""
    of_a, of_b = ({cell.place for cell in side.values()} for side in (a, b))
    compared = {a[key].place for key in a.keys() & b.keys()}
    found = []
    for place in sorted((of_a | of_b) - compared):
        verdict, reason = Verdict.ONE_SIDED, "measured in one of the sweeps only"
        if place in of_a & of_b:
            verdict, reason = Verdict.REFUSED, "model card, weights or exporter options differ"
        model, platform, workload = place
        found.append(
            ComparedCell(
                verdict=verdict,
                model=model,
                platform_key=platform,
                workload=workload,
                reason=reason,
            )
        )
    return found


def _by_weight(cell: ComparedCell) -> tuple[int, float, str, str, str]:
    distance = 0.0 if cell.ratio is None else -abs(float(np.log(cell.ratio)))
    return _ORDER[cell.verdict], distance, cell.model, cell.platform_key, cell.workload


def _shown(value: str | None) -> str:
    if value is None:
        return "not known"
    return value if len(value) <= _SHOWN else f"{value[:_SHOWN]}..."
