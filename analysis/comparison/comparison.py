"""Compares two sweeps cell by cell: which cells are slower or faster beyond the noise."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.arrays.two_samples import (
    OWN_DEGREES,
    POWER,
    PRIOR_SPREAD,
    Figures,
    Limits,
    Sessions,
    Verdict,
    between_sessions,
    figures_of,
)
from fleetrank.analysis.comparison.verdict import (
    Change,
    percent,
    verdict_meaning,
    verdict_words,
    verdicts,
    worded_verdicts,
)
from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.rounds import round_values
from fleetrank.analysis.stored.chosen_workload import WORKLOAD
from fleetrank.analysis.stored.columns import DEFAULT_ORIGINS, EXCLUDED, ORIGINS
from fleetrank.analysis.stored.exclusions import covers, exclusion_notes, read_exclusions
from fleetrank.analysis.stored.latency_statistic import STATISTIC
from fleetrank.analysis.stored.load import last_attempts, load_measurements
from fleetrank.analysis.stored.selection import CHANGE_ALPHA, MARGIN
from fleetrank.analysis.tables.table import Table
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
_SHOWN_COLUMNS = (
    "model", "platform_key", "workload", "verdict", "ratio", "ratio_interval", "p_adjusted",
    "median_a_ms", "median_b_ms", "more_repeats",
)  # fmt: skip
_SHOWN = 60
"""Maximum letters of a value in a sentence; the rows have the full value."""


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


def compare_cells(
    a: Cells, b: Cells, limits: Limits, between: Mapping[str, Sessions]
) -> tuple[ComparedCell, ...]:
    """The verdict on each cell of both sweeps, the most important first.

    Args:
        a: cells of the baseline.
        b: cells of the sweep that may be slower.
        limits: margin, and false discovery rate over all tested cells.
        between: by platform of the common cells, what two sessions add.
    """
    common = [(a[key], b[key]) for key in sorted(a.keys() & b.keys())]
    alike = [pair for pair in common if not _unlike(*pair)]
    sessions = [between[one.platform_key] for one, _ in alike]
    reach, degrees = np.array([one[:2] for one in sessions]).reshape(-1, 2).T
    changes = verdicts(*_figures(alike), limits, (reach, degrees))
    judged = [
        replace(_compared(*pair), **asdict(change))
        for pair, change in zip(alike, changes, strict=True)
    ]
    refused = [
        replace(_compared(*pair), reason=reason) for pair in common if (reason := _unlike(*pair))
    ]
    order = list(Verdict)
    return tuple(
        sorted(
            [*judged, *refused, *_alone(a, b)],
            key=lambda cell: (
                order.index(cell.verdict),
                0.0 if cell.ratio is None else -abs(float(np.log(cell.ratio))),
                cell.model,
                cell.platform_key,
                cell.workload,
            ),
        )
    )


def _figures(pairs: Sequence[tuple[MeasuredCell, MeasuredCell]]) -> tuple[Figures, Figures]:
    """Those of both sides; the cells of a platform say together how far processes spread."""
    cells = [pair[side] for side in (0, 1) for pair in pairs]
    found = figures_of(
        [one.compared_ns for one in cells],
        [one.took_turns for one in cells],
        [f"{one.platform_key} {one.took_turns}" for one in cells],
    )
    return found.at(slice(len(pairs))), found.at(slice(len(pairs), None))


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
    # Processes of different statistics have no median.
    median_a, median_b = (
        None if len(_statistics(cell)) > 1 else float(np.median(cell.medians_ns)) / NS_PER_MS
        for cell in (a, b)
    )
    statistics = _statistics(a, b)
    ratio = None
    if median_a is not None and median_b is not None and len(statistics) < 2:
        ratio = median_b / median_a
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
        ratio=ratio,
    )


def _statistics(*cells: MeasuredCell) -> list[str]:
    """What the latencies of the cells are, each word once; empty if not stated."""
    words = {word for cell in cells for word in cell.facts[STATISTIC].split(_JOIN) if word}
    return sorted(words)


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


def _shown(value: str | None) -> str:
    if value is None:
        return "not known"
    return value if len(value) <= _SHOWN else f"{value[:_SHOWN]}..."


def session_note(between: Mapping[str, Sessions]) -> str:
    """What every interval contains because each sweep is one session, and what makes it known."""
    reach = sorted({round(math.expm1(one.reach), 3) for one in between.values()})
    numbers = sorted({one.n for one in between.values()})
    prior, known = "", ""
    if any(one.has_prior for one in between.values()):
        prior = f" and a prior of {percent(PRIOR_SPREAD)} a session"
        known = f"{OWN_DEGREES + 1} other sweeps of unchanged code show how large it is here, and "
    return (
        "Each sweep is one session, and sessions differ without a change: the interval of every "
        f"ratio contains {' to '.join(map(percent, reach[:: max(len(reach) - 1, 1)]))} for that, "
        f"from {' to '.join(map(str, numbers[:: max(len(numbers) - 1, 1)]))} other sweeps of the "
        f"platform{prior}. "
        f"More repeats do not remove it; {known}`fleetrank ab` compares two files in one session."
    )


def detectable_of(cells: Sequence[ComparedCell]) -> float | None:
    """The ratio that is found whichever single cell changes: the largest over the tested cells.

    `None` if no cell was tested.
    """
    known = (cell.detectable_ratio for cell in cells)
    return max((ratio for ratio in known if ratio is not None), default=None)


def power_note(cells: Sequence[ComparedCell]) -> tuple[str, ...]:
    """The smallest change that this comparison finds."""
    found = detectable_of(cells)
    if found is None:
        return ()
    return (
        f"Smallest change of a single cell that is found with a probability of {percent(POWER)}: "
        f"{percent(found - 1)} in the noisiest cell.",
    )


def rounds_note(a: Cells, b: Cells) -> tuple[str, ...]:
    """What rounds mean for this comparison."""
    sides = [any(cell.took_turns for cell in side.values()) for side in (a, b)]
    if not any(sides):
        return ()
    if not all(sides):
        return (
            "One sweep was measured in rounds and the other was not: models that take turns are a "
            "few per cent slower for this reason alone. Measure both in the same way.",
        )
    return (
        "Models took turns: the effect of the host on each round is subtracted from its cells.",
    )


_SCHEMA = {
    "verdict": pl.String,
    "model": pl.String,
    "platform_key": pl.String,
    "ratio": pl.Float64,
    "ratio_low": pl.Float64,
    "ratio_high": pl.Float64,
    "reason": pl.String,
    "detectable_ratio": pl.Float64,
    "n_a": pl.Int64,
    "n_b": pl.Int64,
    "more_repeats": pl.Int64,
    "statistic": pl.String,
    "median_a_ms": pl.Float64,
    "median_b_ms": pl.Float64,
    "p_value": pl.Float64,
    "p_adjusted": pl.Float64,
    "p_not_slower": pl.Float64,
    "p_not_faster": pl.Float64,
    "p_same_adjusted": pl.Float64,
    "workload": pl.String,
}
"""A narrow terminal hides the last columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The verdict on every cell of two sweeps.

    Attributes:
        limits: margin, and false discovery rate.
        cells: the slower ones first.
        table: a row per cell, in the same order.
        differences: facts that are not the same in both sweeps.
    """

    sweep_a: str
    sweep_b: str
    limits: Limits
    cells: tuple[ComparedCell, ...]
    table: Table
    differences: tuple[Difference, ...]

    @property
    def counts(self) -> Mapping[Verdict, int]:
        """Cells per verdict, including verdicts with 0 cells."""
        found = Counter(cell.verdict for cell in self.cells)
        return {verdict: found[verdict] for verdict in Verdict}

    @property
    def threshold(self) -> float:
        """The margin."""
        return self.limits.margin

    @property
    def detectable_ratio(self) -> float | None:
        """The smallest ratio that is found whichever single cell changes; `None`: not any."""
        return detectable_of(self.cells)

    @property
    def n_tested(self) -> int:
        """Number of cells in which a change could be found."""
        return sum(cell.p_value is not None for cell in self.cells)


def compare_sweeps(
    results: Path,
    sweep_a: str,
    sweep_b: str,
    *,
    threshold: float = MARGIN,
    alpha: float = CHANGE_ALPHA,
) -> Comparison:
    """Compares the process medians of each cell that both sweeps measured.

    Args:
        results: the results folder of a workspace.
        sweep_a: the baseline sweep.
        sweep_b: the sweep that may be slower.
        threshold: the margin, above 0: the largest relative change that is of no interest.
        alpha: false discovery rate over all tested cells.

    Raises:
        NoDataError: the folder has no such sweep, or nothing was measured in it.
        AnalysisError: a sweep is compared with itself or was excluded by hand, or a limit is wrong.
    """
    refuse_wrong_limits(sweep_a, sweep_b, threshold=threshold, alpha=alpha)
    scans = {
        sweep: load_measurements(results, sweep=sweep, origins=ORIGINS)
        for sweep in (sweep_a, sweep_b)
    }
    for sweep, scan in scans.items():
        _refuse_excluded(results, sweep, scan)
    a, b = (_cells(sweep, scan) for sweep, scan in scans.items())
    b = under_same_keys(a, b)
    limits = Limits(margin=threshold, alpha=alpha)
    both = {key: cell for key, cell in a.items() if key in b}
    between = _between_sessions(results, (sweep_a, sweep_b), both)
    cells = compare_cells(a, b, limits, between)
    differences = differing_facts(a, b)
    notes = (
        *_banner((a, b)),
        *power_note(cells),
        *rounds_note(a, b),
        *((session_note(between),) if between else ()),
        *(note for scan in scans.values() for note in exclusion_notes(scan)),
        *(difference.sentence for difference in differences),
    )
    rows = ({**asdict(cell), "verdict": cell.verdict.value} for cell in cells)
    frame = pl.DataFrame([{name: row[name] for name in _SCHEMA} for row in rows], schema=_SCHEMA)
    return Comparison(
        sweep_a=sweep_a,
        sweep_b=sweep_b,
        limits=limits,
        cells=cells,
        table=Table(
            title=f"{sweep_b} against {sweep_a}",
            frame=frame,
            notes=notes,
            explanation=verdict_meaning(limits, "compare/cells"),
            columns=_SHOWN_COLUMNS,
        ),
        differences=differences,
    )


def _between_sessions(results: Path, sweeps: tuple[str, str], cells: Cells) -> dict[str, Sessions]:
    """What two sessions add on the platforms of cells, from all sweeps but these two.

    A change would look like a spread between sessions: so the compared sweeps say nothing, and of
    the others only those with the same file and the same version of the runtime are compared.
    """
    platforms = {cell.platform_key for cell in cells.values()}
    rows = load_measurements(results, origins=ORIGINS).filter(
        pl.col("platform_key").is_in([*platforms]),
        pl.col("latency_p50_ns") > 0,
        ~pl.col("sweep_id").is_in(sweeps),
    )
    alike = ("platform_key", "cell_key", "artifact_sha256", "runtime_version")
    medians = (
        last_attempts(rows)
        .group_by(*alike, "sweep_id")
        .agg(pl.col("latency_p50_ns").median().log())
        .sort(*alike, "sweep_id")
        .collect()
    )
    found = dict.fromkeys(platforms, between_sessions(np.empty((0, 0))))
    for (platform,), part in medians.group_by("platform_key"):
        logs = part.pivot("sweep_id", index=alike, values="latency_p50_ns").drop(alike)
        figures = logs.to_numpy().astype(np.float64)
        found[str(platform)] = between_sessions(figures, are_others=True)
    return found


def refuse_wrong_limits(sweep_a: str, sweep_b: str, *, threshold: float, alpha: float) -> None:
    """Checks the arguments of `compare_sweeps` before any row is read.

    Raises:
        AnalysisError: a sweep is compared with itself, or a limit is out of range.
    """
    if sweep_a == sweep_b:
        raise AnalysisError(f"{sweep_a} is compared with itself", "name two different sweeps")
    if not (0 < threshold < 10 and 0 < alpha < 1):
        raise AnalysisError(
            f"margin {threshold:g} or alpha {alpha:g} is out of range",
            "use a margin such as 0.02 and an alpha such as 0.05",
        )


def _refuse_excluded(results: Path, sweep: str, scan: pl.LazyFrame) -> None:
    """Raises an error for an excluded sweep; if only a part is excluded, the rest is compared."""
    ok = scan.filter(pl.col("status") == "ok")
    excluded = ok.filter(pl.col(EXCLUDED.name).is_not_null())
    n_ok, n_excluded = pl.collect_all([ok.select(pl.len()), excluded.select(pl.len())])
    if n_excluded.item() == 0 or n_excluded.item() < n_ok.item():
        return
    entries = [one for one in read_exclusions(results).entries if one.sweep_id == sweep]
    hits = [one for one in entries if not ok.filter(covers(one)).head(1).collect().is_empty()]
    texts = "; ".join(f"number {one.number}: {one.reason}" for one in hits)
    undo = ", ".join(f"`fleetrank results exclude` with `undo={one.number}`" for one in hits)
    raise AnalysisError(
        f"sweep {sweep} is excluded by hand ({texts})",
        f"compare another sweep, or undo the exclusion: {undo}",
    )


def _cells(sweep: str, frame: pl.LazyFrame) -> Cells:
    processes = last_attempts(frame).filter(pl.col("latency_p50_ns") > 0)
    shown = processes.with_columns(pl.col("latency_p50_ns").alias("shown_ns"))
    cells = (
        round_values(frame, frame)
        .of_attempts(shown, "level_ns")
        .group_by("cell_key")
        .agg(
            pl.col("model").first(),
            pl.col("platform_key").first(),
            pl.col(WORKLOAD).first(),
            pl.col("shown_ns").alias("medians_ns"),
            pl.col("latency_p50_ns").alias("compared_ns"),
            pl.col("round_id").is_not_null().any().alias("took_turns"),
            *facts_of(),
        )
        .collect()
    )
    if cells.is_empty():
        raise NoDataError(
            f"sweep {sweep} has no successful measurement",
            "see the table `trust` with `part=dropped`, or compare another sweep",
        )
    return {
        row["cell_key"]: MeasuredCell(
            model=row["model"],
            platform_key=row["platform_key"],
            workload=row[WORKLOAD],
            medians_ns=np.array(row["medians_ns"], dtype=np.float64),
            compared_ns=np.array(row["compared_ns"], dtype=np.float64),
            took_turns=row["took_turns"],
            facts={name: row[name] for name in FACTS},
        )
        for row in cells.iter_rows(named=True)
    }


def _banner(sides: Sequence[Cells]) -> tuple[str, ...]:
    origins = {cell.facts["origin"] for side in sides for cell in side.values()}
    unreal = sorted(origin for origin in origins if origin not in DEFAULT_ORIGINS)
    if not unreal:
        return ()
    return (f"NOT REAL DEVICES: rows are {' and '.join(unreal)}.",)


def comparison_json(found: Comparison) -> dict[str, object]:
    """The comparison as JSON values, for programs."""
    table = found.table
    return {
        "sweep_a": found.sweep_a,
        "sweep_b": found.sweep_b,
        "threshold": found.threshold,
        **asdict(found.limits),
        "detectable_ratio": found.detectable_ratio,
        "cells": {str(verdict): n for verdict, n in found.counts.items()},
        "differences": [difference.as_json() for difference in found.differences],
        "notes": [*table.notes, *table.explanation],
        "rows": table.frame.to_dicts(),
    }


def worded_table(found: Comparison) -> Table:
    """The table with its verdicts in words, for printing; the differences are printed apart."""
    printed = {difference.sentence for difference in found.differences}
    return replace(
        found.table,
        frame=worded_verdicts(found.table.frame, found.limits),
        notes=tuple(note for note in found.table.notes if note not in printed),
    )


def comparison_sentence(found: Comparison) -> str:
    """The answer in one line."""
    counts = found.counts
    texts = ", ".join(f"{n} {verdict_words(one, found.limits)}" for one, n in counts.items() if n)
    return f"{count_of(sum(counts.values()), 'cell')}: {texts}"
