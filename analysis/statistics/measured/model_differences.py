"""Do two models really differ on a platform, or is the difference within the noise?"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from operator import itemgetter

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.bootstrap import adjust_p
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.arrays.significance import (
    MIN_PAIRS,
    MIN_PROCESSES,
    TSquared,
    cliffs_delta,
    cohens_d,
    hotelling_t2,
    mann_whitney,
    wilcoxon,
)
from fleetrank.analysis.panel.selected_pairs import MAX_LISTED_PAIRS
from fleetrank.analysis.panel.session import Session
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPair:
    """Two models on one platform; a test that could not be made is `None`, with the reason.

    Attributes:
        n_a, n_b: processes of each model.
        ratio: median of b over median of a; `None` if that of a is 0.
        u: pairs of processes in which b is slower; `p_value` is its two-sided p.
        n_paired: repeats with the same number in one sweep, which the signed-rank test uses.
    """

    platform_key: str
    model_a: str
    model_b: str
    n_a: int
    n_b: int
    ratio: float | None
    u: float | None = None
    p_value: float | None = None
    p_adjusted: float | None = None
    n_paired: int | None = None
    wilcoxon_p: float | None = None
    wilcoxon_p_adjusted: float | None = None
    cohens_d: float | None = None
    cliffs_delta: float | None = None
    hotelling_t2: float | None = None
    hotelling_p: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignificanceResult:
    """Tests of pairs of models, p adjusted over them; `None` if too many pairs match."""

    pairs: tuple[ModelPair, ...] | None


def significance(session: Session) -> SignificanceResult:
    """Tests and effect sizes for the pairs of models that the settings name, or near ones.

    Raises the errors of `Session.comparable`.
    """
    found = _pairs(_samples(session.attempts, session.comparable.cells), session.selection)
    # Counting a million pairs would take too long.
    samples = list(itertools.islice(found, MAX_LISTED_PAIRS + 1))
    if len(samples) > MAX_LISTED_PAIRS:
        return SignificanceResult(pairs=None)
    tested = [_tested(a, b) for a, b in samples]
    adjusted = adjust_p([pair.p_value for pair in tested])
    wilcoxon_adjusted = adjust_p([pair.wilcoxon_p for pair in tested])
    return SignificanceResult(
        pairs=tuple(
            replace(pair, p_adjusted=p, wilcoxon_p_adjusted=wilcoxon_p)
            for pair, p, wilcoxon_p in zip(tested, adjusted, wilcoxon_adjusted, strict=True)
        )
    )


def significance_table(session: Session) -> Table:
    """Tests and effect sizes for pairs of models with near medians, platform by platform.

    Settings: `model_a`, `model_b` name the models (`*` matches any text), `within` the largest
    difference of medians listed when neither is named. `--source` and `--source-tier` choose
    platforms.
    """
    pairs = significance(session).pairs
    hidden: tuple[str, ...] = ()
    if pairs is None:
        hidden = (
            f"More than {MAX_LISTED_PAIRS} pairs of models match and are not listed: choose "
            "fewer with --source, --model or --set within=0.05.",
        )
    return Table(
        title="Significance between models",
        frame=pl.DataFrame([asdict(pair) for pair in pairs or ()], schema=_SCHEMA),
        notes=(*session.comparable.notes, *hidden, _chosen_note(session.selection)),
        explanation=_MEANING,
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


def _tested(a: _Sample, b: _Sample) -> ModelPair:
    n_a, n_b = a.latency.size, b.latency.size
    median_a = float(np.median(a.latency))
    pair = ModelPair(
        platform_key=a.platform,
        model_a=a.model,
        model_b=b.model,
        n_a=n_a,
        n_b=n_b,
        ratio=float(np.median(b.latency)) / median_a if median_a > 0 else None,
    )
    if min(n_a, n_b) < MIN_PROCESSES:
        few = count_of(min(n_a, n_b), "process", "processes")
        return replace(pair, reason=f"{few}, at least {MIN_PROCESSES} a side needed")
    u, p_value = mann_whitney(a.latency, b.latency)
    n_paired, wilcoxon_p = _paired(a, b)
    d = cohens_d(a.latency, b.latency)
    both, no_both = _both_measures(a, b)
    reasons = (
        None if wilcoxon_p is not None
        else f"no Wilcoxon: {n_paired} paired repeats, at least {MIN_PAIRS} needed",
        None if d is not None else "no Cohen's d: neither side varies",
        no_both,
    )  # fmt: skip
    return replace(
        pair,
        u=u,
        p_value=p_value,
        n_paired=n_paired,
        wilcoxon_p=wilcoxon_p,
        cohens_d=d,
        cliffs_delta=cliffs_delta(a.latency, b.latency),
        hotelling_t2=None if both is None else both.t2,
        hotelling_p=None if both is None else both.p_value,
        reason="; ".join(reason for reason in reasons if reason) or None,
    )


def _paired(a: _Sample, b: _Sample) -> tuple[int, float | None]:
    """Number of paired repeats, and the p of their signed-rank test."""
    at_b = {run: position for position, run in enumerate(b.runs)}
    common = [(i, at_b[run]) for i, run in enumerate(a.runs) if run in at_b]
    if len(common) < MIN_PAIRS:
        return len(common), None
    here, there = np.array(common).T
    return len(common), wilcoxon(b.latency[there] - a.latency[here])


def _both_measures(a: _Sample, b: _Sample) -> tuple[TSquared | None, str | None]:
    """The test of latency and accuracy together, or the reason why there is none."""
    accuracies = (a.accuracy, b.accuracy)
    if any(np.isnan(accuracy).any() or np.ptp(accuracy) == 0 for accuracy in accuracies):
        return None, "no T2: accuracy was not measured with variance"
    found = hotelling_t2(*(np.column_stack([one.latency, one.accuracy]) for one in (a, b)))
    return found, "no T2: latency and accuracy do not both vary" if found is None else None


def _chosen_note(selection: Selection) -> str:
    names = [setting(selection, name, "*") for name in ("model_a", "model_b")]
    if names != ["*", "*"]:
        return f"Pairs: {names[0]} against {names[1]}, on every platform that measured both."
    within = setting(selection, "within", NEAR)
    return f"Pairs: models whose medians on a platform lie within {100 * within:g} %."
