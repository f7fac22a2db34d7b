"""Two sweeps, cell by cell: what got slower or faster beyond the noise of their processes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import comb
from pathlib import Path

import numpy as np
import polars as pl

from analysis.bootstrap import adjust_p
from analysis.columns import ORIGINS
from analysis.comparison_facts import MUST_BE_EQUAL, Difference, facts_of, unlike_facts
from analysis.errors import AnalysisError, NoDataError
from analysis.load import last_attempts, load_measurements
from analysis.scope import count_of
from analysis.significance import MIN_PROCESSES, cliffs_delta, mann_whitney
from analysis.tables import Table

DEFAULT_THRESHOLD = 0.02
"""Below 2 % nobody acts: half of what the medians of two processes on a quiet machine differ by."""
DEFAULT_ALPHA = 0.05
"""Share of false alarms among the cells called slower or faster that is put up with."""
_NS_PER_MS = 1e6


class Verdict(StrEnum):
    """What can be said about one cell."""

    SLOWER = "slower"
    FASTER = "faster"
    UNDECIDED = "undecided"
    """Beyond the threshold and unlikely alone, yet one such cell among so many may be chance."""
    SAME = "same"
    REFUSED = "refused"
    """Measured in both and not comparable, or too few processes for a test."""
    ONE_SIDED = "one_sided"
    """Measured in one of the two sweeps only."""


_ORDER = {verdict: number for number, verdict in enumerate(Verdict)}
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
        table: a row per cell, the slower ones first; ratio is median of b over median of a.
        differences: facts that are not the same in both sweeps.
        counts: cells per verdict, those of no cell included.
    """

    sweep_a: str
    sweep_b: str
    threshold: float
    table: Table
    differences: tuple[Difference, ...]
    counts: Mapping[Verdict, int]

    @property
    def n_tested(self) -> int:
        """Cells that a test was made on."""
        untested = self.counts[Verdict.REFUSED] + self.counts[Verdict.ONE_SIDED]
        return sum(self.counts.values()) - untested


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
        sweep_a: the one to compare with.
        sweep_b: the one that may have become slower.
        threshold: a smaller relative difference of medians is no difference, above 0.
        alpha: false discovery rate over all tested cells.

    Raises:
        NoDataError: there is no such sweep, or nothing was measured in it.
        AnalysisError: a sweep is compared with itself, or a limit is none.
    """
    if sweep_a == sweep_b:
        raise AnalysisError(f"{sweep_a} is compared with itself", "name two sweeps")
    if not (0 < threshold < 10 and 0 < alpha < 1):
        raise AnalysisError(
            f"threshold {threshold:g} or alpha {alpha:g} is out of range",
            "use a share such as 0.02, and an alpha such as 0.05",
        )
    sides = [_cells(results, sweep) for sweep in (sweep_a, sweep_b)]
    rows = _with_verdicts(_rows(*sides), threshold, alpha)
    counts = {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in Verdict}
    differences = unlike_facts(*sides)
    frame = pl.DataFrame([_plain(row) for row in rows], schema=_SCHEMA)
    table = Table(
        title=f"{sweep_b} against {sweep_a}",
        frame=frame,
        notes=(
            *_banner(sides),
            *(difference.sentence for difference in differences),
            *_power(rows, alpha),
            *_meaning(threshold, alpha),
        ),
    )
    return Comparison(
        sweep_a=sweep_a,
        sweep_b=sweep_b,
        threshold=threshold,
        table=table,
        differences=differences,
        counts=counts,
    )


_Row = dict[str, object]
_Cells = Mapping[str, Mapping[str, object]]


def _cells(results: Path, sweep: str) -> _Cells:
    """Cell key to model, platform, process medians and facts."""
    frame = load_measurements(results, sweep=sweep, origins=ORIGINS)
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
            f"sweep {sweep} holds no successful measurement",
            "see `fleetrank report show dropped`, or compare another",
        )
    return {str(row["cell_key"]): row for row in cells.iter_rows(named=True)}


def _rows(a: _Cells, b: _Cells) -> list[_Row]:
    rows = [_compared(a[key], b[key]) for key in sorted(a.keys() & b.keys())]
    compared = {_place(row) for row in rows}
    places = [{_place(cell) for cell in side.values()} for side in (a, b)]
    alone = {_place(cell) for side in (a, b) for cell in side.values()} - compared
    return rows + [
        _alone(*place, is_in_both=all(place in side for side in places)) for place in sorted(alone)
    ]


def _place(cell: Mapping[str, object]) -> tuple[str, str]:
    return str(cell["model"]), str(cell["platform_key"])


def _alone(model: str, platform: str, *, is_in_both: bool) -> _Row:
    row: _Row = {"model": model, "platform_key": platform}
    if is_in_both:
        reason = "model card, weights or exporter options differ"
        return row | {"verdict": Verdict.REFUSED, "reason": reason}
    return row | {"verdict": Verdict.ONE_SIDED, "reason": "measured in one of the sweeps only"}


def _compared(a: Mapping[str, object], b: Mapping[str, object]) -> _Row:
    medians = [np.array(cell["medians_ns"], dtype=np.float64) for cell in (a, b)]
    middle = [float(np.median(values)) for values in medians]
    sizes = [values.size for values in medians]
    row: _Row = {
        "model": a["model"],
        "platform_key": a["platform_key"],
        "n_a": sizes[0],
        "n_b": sizes[1],
        "median_a_ms": middle[0] / _NS_PER_MS,
        "median_b_ms": middle[1] / _NS_PER_MS,
        "ratio": middle[1] / middle[0],
    }
    unlike = [f"{name}: {a[name]} | {b[name]}" for name in MUST_BE_EQUAL if a[name] != b[name]]
    if unlike:
        return row | {"verdict": Verdict.REFUSED, "reason": "; ".join(unlike)}
    if min(sizes) < MIN_PROCESSES:
        reason = f"{min(sizes)} processes, at least {MIN_PROCESSES} a side needed"
        return row | {"verdict": Verdict.REFUSED, "reason": reason}
    _u, p_value = mann_whitney(*medians)
    return row | {"p_value": p_value, "cliffs_delta": cliffs_delta(*medians)}


def _with_verdicts(rows: Sequence[_Row], threshold: float, alpha: float) -> list[_Row]:
    known = [row.get("p_value") for row in rows]
    adjusted = adjust_p([float(str(p)) if p is not None else None for p in known])
    judged = [
        row if p is None else {**row, "p_adjusted": p, **_judge(row, p, threshold, alpha)}
        for row, p in zip(rows, adjusted, strict=True)
    ]
    return sorted(judged, key=_by_weight)


def _judge(row: _Row, p_adjusted: float, threshold: float, alpha: float) -> _Row:
    ratio, p_value = float(str(row["ratio"])), float(str(row["p_value"]))
    is_large = ratio >= 1 + threshold or ratio <= 1 / (1 + threshold)
    if is_large and p_adjusted <= alpha:
        return {"verdict": Verdict.SLOWER if ratio > 1 else Verdict.FASTER}
    if is_large and p_value <= alpha:
        reason = "unlikely by itself, not among so many cells: measure it with more repeats"
        return {"verdict": Verdict.UNDECIDED, "reason": reason}
    if p_adjusted <= alpha:
        return {"verdict": Verdict.SAME, "reason": "a difference below the threshold"}
    return {"verdict": Verdict.SAME}


def _by_weight(row: _Row) -> tuple[int, float, str, str]:
    ratio = row.get("ratio")
    distance = 0.0 if ratio is None else -abs(np.log(float(str(ratio))))
    verdict = _ORDER[Verdict(str(row["verdict"]))]
    return verdict, distance, str(row["model"]), str(row["platform_key"])


def _plain(row: _Row) -> _Row:
    return {name: row.get(name) for name in _SCHEMA} | {"verdict": str(row["verdict"])}


def _banner(sides: Sequence[_Cells]) -> tuple[str, ...]:
    origins = {str(cell["origin"]) for side in sides for cell in side.values()}
    unreal = sorted(origin for origin in origins if origin in {"virtual", "simulated"})
    if not unreal:
        return ()
    return (f"NOT MEASURED ON REAL DEVICES: rows are {' and '.join(unreal)}.",)


def _power(rows: Sequence[_Row], alpha: float) -> tuple[str, ...]:
    """Says so where a single slower cell could not have been seen."""
    tested = [row for row in rows if row.get("p_value") is not None]
    if not tested:
        return ()
    sizes = [(int(str(row["n_a"])), int(str(row["n_b"]))) for row in tested]
    smallest = max(2 / comb(n_a + n_b, n_a) for n_a, n_b in sizes)
    needed = int(np.ceil(smallest * len(tested) / alpha))
    if needed <= 1:
        return ()
    return (
        f"With these repeats p is {smallest:.2g} at best: fewer than {needed} changed cells among "
        f"{len(tested)} cannot be told from chance. More repeats, or a sweep of fewer cells, tell "
        "smaller groups.",
    )


def _meaning(threshold: float, alpha: float) -> tuple[str, ...]:
    return (
        "Process medians of cells that both sweeps measured with the same card, weights and "
        "platform; ratio: median of b over median of a, above 1 when b is slower.",
        "p_value: Mann-Whitney U, two-sided, exact; p_adjusted: Benjamini-Hochberg over the tested "
        f"cells. slower, faster: p_adjusted at most {alpha:g} and a difference of at least "
        f"{100 * threshold:g} %; refused below {MIN_PROCESSES} processes a side.",
        "Two sweeps are two sessions: a host that was warmer or busier in one of them is part of "
        "the difference. A third sweep of the unchanged code shows how much.",
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
    told = ", ".join(f"{n} {verdict}" for verdict, n in counts.items() if n)
    return f"{count_of(sum(counts.values()), 'cell')}: {told.replace('_', '-')}"
