"""Compares two sweeps cell by cell: which cells are slower or faster beyond the noise."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import comb
from pathlib import Path

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.significance import MIN_PROCESSES
from fleetrank.analysis.comparison.cell_verdicts import (
    FACTS,
    Cells,
    ComparedCell,
    Difference,
    MeasuredCell,
    Verdict,
    compare_cells,
    differing_facts,
    facts_of,
)
from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.stored.columns import EXCLUDED, ORIGINS
from fleetrank.analysis.stored.exclusions import covers, exclusion_notes, read_exclusions
from fleetrank.analysis.stored.load import last_attempts, load_measurements
from fleetrank.analysis.tables.table import Table
from fleetrank.foundation.wording import count_of

DEFAULT_THRESHOLD = 0.02
"""Smaller changes are not useful: medians of two processes on a quiet machine differ by 4 %."""
DEFAULT_ALPHA = 0.05
"""Accepted share of false alarms among the cells with the verdict slower or faster."""


_SCHEMA = {
    "verdict": pl.String,
    "model": pl.String,
    "platform_key": pl.String,
    "n_a": pl.Int64,
    "n_b": pl.Int64,
    "median_a_ms": pl.Float64,
    "median_b_ms": pl.Float64,
    "ratio": pl.Float64,
    "cliffs_delta": pl.Float64,
    "p_value": pl.Float64,
    "p_adjusted": pl.Float64,
    "reason": pl.String,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The verdict on every cell of two sweeps.

    Attributes:
        cells: the slower ones first.
        table: a row per cell, in the same order.
        differences: facts that are not the same in both sweeps.
    """

    sweep_a: str
    sweep_b: str
    threshold: float
    cells: tuple[ComparedCell, ...]
    table: Table
    differences: tuple[Difference, ...]

    @property
    def counts(self) -> Mapping[Verdict, int]:
        """Cells per verdict, including verdicts with 0 cells."""
        found = Counter(cell.verdict for cell in self.cells)
        return {verdict: found[verdict] for verdict in Verdict}

    @property
    def n_tested(self) -> int:
        """Number of tested cells."""
        return sum(cell.p_value is not None for cell in self.cells)


def compare_sweeps(
    results: Path,
    sweep_a: str,
    sweep_b: str,
    *,
    threshold: float = DEFAULT_THRESHOLD,
    alpha: float = DEFAULT_ALPHA,
) -> Comparison:
    """Compares the process medians of each cell that both sweeps measured.

    Args:
        results: the results folder of a workspace.
        sweep_a: the baseline sweep.
        sweep_b: the sweep that may be slower.
        threshold: a smaller relative difference of medians is not a difference, above 0.
        alpha: false discovery rate over all tested cells.

    Raises:
        NoDataError: the folder has no such sweep, or nothing was measured in it.
        AnalysisError: a sweep is compared with itself or was excluded by hand, or a limit is wrong.
    """
    if sweep_a == sweep_b:
        raise AnalysisError(f"{sweep_a} is compared with itself", "name two different sweeps")
    if not (0 < threshold < 10 and 0 < alpha < 1):
        raise AnalysisError(
            f"threshold {threshold:g} or alpha {alpha:g} is out of range",
            "use a fraction such as 0.02 and an alpha such as 0.05",
        )
    scans = {
        sweep: load_measurements(results, sweep=sweep, origins=ORIGINS)
        for sweep in (sweep_a, sweep_b)
    }
    for sweep, scan in scans.items():
        _refuse_excluded(results, sweep, scan)
    a, b = (_cells(sweep, scan) for sweep, scan in scans.items())
    cells = compare_cells(a, b, threshold, alpha)
    differences = differing_facts(a, b)
    notes = (
        *_banner((a, b)),
        *(note for scan in scans.values() for note in exclusion_notes(scan)),
        *(difference.sentence for difference in differences),
        *_power(cells, alpha),
        *_meaning(threshold, alpha),
    )
    frame = pl.DataFrame([{**asdict(c), "verdict": c.verdict.value} for c in cells], schema=_SCHEMA)
    return Comparison(
        sweep_a=sweep_a,
        sweep_b=sweep_b,
        threshold=threshold,
        cells=cells,
        table=Table(title=f"{sweep_b} against {sweep_a}", frame=frame, notes=notes),
        differences=differences,
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
    undo = ", ".join(f"`fleetrank results exclude --undo {one.number}`" for one in hits)
    raise AnalysisError(
        f"sweep {sweep} is excluded by hand ({texts})",
        f"compare another sweep, or undo the exclusion: {undo}",
    )


def _cells(sweep: str, frame: pl.LazyFrame) -> Cells:
    processes = last_attempts(frame).filter(pl.col("latency_p50_ns") > 0)
    cells = (
        processes.group_by("cell_key")
        .agg(
            pl.col("model").first(),
            pl.col("platform_key").first(),
            pl.col("latency_p50_ns").alias("medians_ns"),
            *facts_of(),
        )
        .collect()
    )
    if cells.is_empty():
        raise NoDataError(
            f"sweep {sweep} has no successful measurement",
            "see `fleetrank report show dropped`, or compare another sweep",
        )
    return {
        row["cell_key"]: MeasuredCell(
            model=row["model"],
            platform_key=row["platform_key"],
            medians_ns=np.array(row["medians_ns"], dtype=np.float64),
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


def _power(cells: Sequence[ComparedCell], alpha: float) -> tuple[str, ...]:
    """A note if the test could not have found a single slower cell."""
    tested = [cell for cell in cells if cell.p_value is not None]
    sizes = [(c.n_a, c.n_b) for c in tested if c.n_a is not None and c.n_b is not None]
    if not sizes:
        return ()
    smallest = max(2 / comb(n_a + n_b, n_a) for n_a, n_b in sizes)
    needed = int(np.ceil(smallest * len(tested) / alpha))
    if needed <= 1:
        return ()
    return (
        f"With these repeats p is {smallest:.2g} at best: fewer than {needed} changed cells "
        f"among {len(tested)} cannot be separated from chance. More repeats, or a sweep of "
        "fewer cells, find smaller groups.",
    )


def _meaning(threshold: float, alpha: float) -> tuple[str, ...]:
    return (
        "Process medians of cells that both sweeps measured with the same card, weights and "
        "platform; ratio: median of b over median of a, above 1 when b is slower.",
        "p_value: Mann-Whitney U, two-sided, exact; p_adjusted: Benjamini-Hochberg over the "
        f"tested cells. slower, faster: p_adjusted at most {alpha:g} and a difference of at "
        f"least {100 * threshold:g} %; cells with fewer than {MIN_PROCESSES} processes a side "
        "are not tested.",
        "Two sweeps are two sessions: part of a difference can come from a host that was warmer "
        "or busier in one of them. A third sweep of the unchanged code shows how large that "
        "part is.",
    )


def comparison_json(found: Comparison) -> dict[str, object]:
    """The comparison as JSON values, for programs."""
    return {
        "sweep_a": found.sweep_a,
        "sweep_b": found.sweep_b,
        "threshold": found.threshold,
        "cells": {str(verdict): n for verdict, n in found.counts.items()},
        "differences": [difference.as_json() for difference in found.differences],
        "notes": list(found.table.notes),
        "rows": found.table.frame.to_dicts(),
    }


def comparison_sentence(found: Comparison) -> str:
    """The answer in one line."""
    counts = found.counts
    texts = ", ".join(f"{n} {verdict}" for verdict, n in counts.items() if n)
    return f"{count_of(sum(counts.values()), 'cell')}: {texts.replace('_', '-')}"
