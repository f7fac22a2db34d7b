"""Do two models really differ on a platform, or is the difference within the noise?"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from operator import itemgetter

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.bootstrap import adjust_p
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.arrays.significance import (
    MIN_PAIRS,
    MIN_PROCESSES,
    cliffs_delta,
    cohens_d,
    hotelling_t2,
    mann_whitney,
    wilcoxon,
)
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.transfer.transfer_table import MAX_LISTED_PAIRS
from fleetrank.analysis.stored.load import valid_attempts
from fleetrank.analysis.stored.selection import Selection, setting
from fleetrank.analysis.tables.table import Table
from fleetrank.foundation.wording import count_of

NEAR = 0.2
"""Medians further apart than this are compared only if two models are named: repeats of one model
are flagged from 15 % on, so a larger difference is clear without a test."""

_SCHEMA = {
    "platform_key": pl.String,
    "model_a": pl.String,
    "model_b": pl.String,
    "n_a": pl.Int64,
    "n_b": pl.Int64,
    "ratio": pl.Float64,
    "u": pl.Float64,
    "p_value": pl.Float64,
    "p_adjusted": pl.Float64,
    "n_paired": pl.Int64,
    "wilcoxon_p": pl.Float64,
    "wilcoxon_p_adjusted": pl.Float64,
    "cohens_d": pl.Float64,
    "cliffs_delta": pl.Float64,
    "hotelling_t2": pl.Float64,
    "hotelling_p": pl.Float64,
    "reason": pl.String,
}
_MEANING = (
    "A sample is the set of medians of single processes; samples inside one process are not "
    "independent repeats. ratio: median of b over median of a, above 1 when b is slower.",
    f"No test below {MIN_PROCESSES} processes a side: complete separation gives p = 0.1 at 3 a "
    "side and 0.029 at 4, and after a correction over several pairs p is above 0.05.",
    "p_value: Mann-Whitney U, two-sided, exact, ties included (normal approximation beyond 60 "
    "values); u: pairs of processes in which b is slower. wilcoxon_p: signed-rank test of "
    "repeats with the same number in one sweep, which ran at nearly the same time. It needs "
    f"{MIN_PAIRS} pairs, because 5 cannot give less than 0.0625.",
    "p_adjusted, wilcoxon_p_adjusted: Benjamini-Hochberg over the listed pairs of models.",
    "cohens_d: (mean of b - mean of a) / pooled standard deviation (n - 1); cliffs_delta: P(b "
    "slower) - P(b faster), -1 to 1. With process medians of one session d is large even for "
    "differences of a few per cent: read it together with ratio.",
    "Hotelling's T2 (latency and accuracy together) needs an accuracy that was measured several "
    "times; a published accuracy is one number without variance.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    """Processes of one model on one platform, (n,) each; `runs` names sweep and repeat."""

    platform: str
    model: str
    runs: tuple[str, ...]
    latency: Floats
    accuracy: Floats


def significance_table(session: Session) -> Table:
    """Tests and effect sizes for pairs of models with near medians, platform by platform.

    Settings: `model_a`, `model_b` name the models (`*` matches any text), `within` the largest
    difference of medians listed when neither is named. `--source` and `--source-tier` choose
    platforms.
    """
    selection, comparable = session.selection, session.comparable
    found = _pairs(_samples(session.attempts, comparable.cells), selection)
    # Counting a million pairs would take too long.
    pairs = list(itertools.islice(found, MAX_LISTED_PAIRS + 1))
    hidden: tuple[str, ...] = ()
    if len(pairs) > MAX_LISTED_PAIRS:
        hidden = (
            f"More than {MAX_LISTED_PAIRS} pairs of models match and are not listed: choose "
            "fewer with --source, --model or --set within=0.05.",
        )
        pairs = []
    rows = pl.DataFrame([_row(a, b) for a, b in pairs], schema=_SCHEMA)
    shown = rows.with_columns(
        pl.Series(f"{name}_adjusted", adjust_p(rows[column].to_list()), pl.Float64)
        for name, column in (("p", "p_value"), ("wilcoxon_p", "wilcoxon_p"))
    )
    chosen = _chosen_note(selection)
    return Table(
        title="Significance between models",
        frame=shown,
        notes=(*comparable.notes, *hidden, chosen, *_MEANING),
    )


def _samples(attempts: pl.LazyFrame, cells: pl.DataFrame) -> Iterator[list[_Sample]]:
    """The processes, one platform at a time in order; one without a latency is left out."""
    names = cells.select("cell_key", "platform_key", "identity")
    processes = (
        valid_attempts(attempts)
        .select(
            "cell_key",
            pl.format("{} #{}", "sweep_id", "repeat").alias("run"),
            pl.col("latency_p50_ns").alias("latency"),
            pl.col("accuracy_top1").alias("accuracy"),
        )
        .drop_nulls("latency")
        .collect()
        .join(names, on="cell_key")
        .sort("platform_key", "identity", "run")
        .group_by("platform_key", "identity", maintain_order=True)
        .agg("run", "latency", "accuracy")
    )
    for platform, rows in itertools.groupby(processes.iter_rows(), key=itemgetter(0)):
        yield [
            _Sample(
                platform=platform,
                model=model,
                runs=tuple(runs),
                latency=np.array(latency),
                accuracy=np.array(accuracy, dtype=np.float64),
            )
            for _, model, runs, latency, accuracy in rows
        ]


def _pairs(
    platforms: Iterator[list[_Sample]], selection: Selection
) -> Iterator[tuple[_Sample, _Sample]]:
    wanted_a = setting(selection, "model_a", "*")
    wanted_b = setting(selection, "model_b", "*")
    within = setting(selection, "within", NEAR)
    for samples in platforms:
        if wanted_a == wanted_b == "*":
            yield from _near(samples, within)
            continue
        for a, b in itertools.combinations(samples, 2):
            if _fit(a, b, wanted_a, wanted_b):
                yield a, b
            elif _fit(b, a, wanted_a, wanted_b):
                yield b, a


def _near(samples: Sequence[_Sample], within: float) -> Iterator[tuple[_Sample, _Sample]]:
    medians = [float(np.median(sample.latency)) for sample in samples]
    for (i, a), (j, b) in itertools.combinations(enumerate(samples), 2):
        low, high = sorted((medians[i], medians[j]))
        if high <= low * (1 + within):
            yield a, b


def _fit(a: _Sample, b: _Sample, wanted_a: str, wanted_b: str) -> bool:
    return fnmatchcase(a.model, wanted_a) and fnmatchcase(b.model, wanted_b)


def _row(a: _Sample, b: _Sample) -> dict[str, object]:
    n_a, n_b = a.latency.size, b.latency.size
    median_a = float(np.median(a.latency))
    row: dict[str, object] = {
        "platform_key": a.platform,
        "model_a": a.model,
        "model_b": b.model,
        "n_a": n_a,
        "n_b": n_b,
        "ratio": float(np.median(b.latency)) / median_a if median_a > 0 else None,
    }
    if min(n_a, n_b) < MIN_PROCESSES:
        return row | {
            "reason": f"{count_of(min(n_a, n_b), 'process', 'processes')}, at least "
            f"{MIN_PROCESSES} a side needed"
        }
    u, p = mann_whitney(a.latency, b.latency)
    tests = (_paired(a, b), _effect(a, b), _both_measures(a, b))
    reasons = [str(test.pop("reason")) for test in tests if "reason" in test]
    paired, effect, both = tests
    return (
        row | {"u": u, "p_value": p, "reason": "; ".join(reasons) or None} | paired | effect | both
    )


def _paired(a: _Sample, b: _Sample) -> dict[str, object]:
    at_b = {run: position for position, run in enumerate(b.runs)}
    common = [(i, at_b[run]) for i, run in enumerate(a.runs) if run in at_b]
    if len(common) < MIN_PAIRS:
        reason = f"no Wilcoxon: {len(common)} paired repeats, at least {MIN_PAIRS} needed"
        return {"n_paired": len(common), "reason": reason}
    here, there = np.array(common).T
    return {"n_paired": len(common), "wilcoxon_p": wilcoxon(b.latency[there] - a.latency[here])}


def _effect(a: _Sample, b: _Sample) -> dict[str, object]:
    effect: dict[str, object] = {"cliffs_delta": cliffs_delta(a.latency, b.latency)}
    d = cohens_d(a.latency, b.latency)
    return effect | (
        {"reason": "no Cohen's d: neither side varies"} if d is None else {"cohens_d": d}
    )


def _both_measures(a: _Sample, b: _Sample) -> dict[str, object]:
    accuracies = (a.accuracy, b.accuracy)
    if any(np.isnan(accuracy).any() or np.ptp(accuracy) == 0 for accuracy in accuracies):
        return {"reason": "no T2: accuracy was not measured with variance"}
    found = hotelling_t2(*(np.column_stack([one.latency, one.accuracy]) for one in (a, b)))
    if found is None:
        return {"reason": "no T2: latency and accuracy do not both vary"}
    return {"hotelling_t2": found.t2, "hotelling_p": found.p_value}


def _chosen_note(selection: Selection) -> str:
    names = [setting(selection, name, "*") for name in ("model_a", "model_b")]
    if names != ["*", "*"]:
        return f"Pairs: {names[0]} against {names[1]}, on every platform that measured both."
    within = setting(selection, "within", NEAR)
    return f"Pairs: models whose medians on a platform lie within {100 * within:g} %."
