"""Compares two sweeps cell by cell: which cells are slower or faster beyond the noise."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.equivalence import Limits
from fleetrank.analysis.comparison.cell_verdicts import (
    FACTS,
    Cells,
    ComparedCell,
    Difference,
    MeasuredCell,
    compare_cells,
    differing_facts,
    facts_of,
    under_same_keys,
)
from fleetrank.analysis.comparison.changes import DEFAULT_ALPHA, DEFAULT_MARGIN, Verdict
from fleetrank.analysis.comparison.comparison_notes import (
    SESSION_NOTE,
    detectable_of,
    explanation_of,
    power_note,
    rounds_note,
    verdict_words,
    worded_verdicts,
)
from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.rounds.round_values import round_values
from fleetrank.analysis.stored.chosen_workload import WORKLOAD
from fleetrank.analysis.stored.columns import EXCLUDED, ORIGINS
from fleetrank.analysis.stored.exclusions import covers, exclusion_notes, read_exclusions
from fleetrank.analysis.stored.load import last_attempts, load_measurements
from fleetrank.analysis.tables.table import Table
from fleetrank.foundation.wording import count_of

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
    "cliffs_delta": pl.Float64,
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
    threshold: float = DEFAULT_MARGIN,
    alpha: float = DEFAULT_ALPHA,
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
    cells = compare_cells(a, b, limits)
    differences = differing_facts(a, b)
    notes = (
        *_banner((a, b)),
        *power_note(cells, limits),
        *rounds_note(a, b, limits),
        SESSION_NOTE,
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
            explanation=explanation_of(limits),
        ),
        differences=differences,
    )


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
            "see the table `quality` with `list=dropped`, or compare another sweep",
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
    unreal = sorted(origin for origin in origins if origin in {"virtual", "simulated"})
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
        "margin": found.limits.margin,
        "alpha": found.limits.alpha,
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
