"""Which of two models is slower on a platform, are they the same, or is neither shown?"""

import itertools
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.bootstrap import adjust_p
from fleetrank.analysis.arrays.equivalence import Limits
from fleetrank.analysis.arrays.significance import (
    MIN_PAIRS,
    MIN_PROCESSES,
    TSquared,
    cohens_d,
    hotelling_t2,
    wilcoxon,
)
from fleetrank.analysis.comparison.changes import (
    DEFAULT_ALPHA,
    DEFAULT_MARGIN,
    Change,
    judge_changes,
)
from fleetrank.analysis.comparison.comparison_notes import verdict_meaning, worded_verdicts
from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.selected_pairs import MAX_LISTED_PAIRS
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.measured.model_samples import (
    ModelSample,
    chosen_note,
    model_pairs,
)
from fleetrank.analysis.stored.selection import Selection, setting
from fleetrank.analysis.tables.table import Table

_SCHEMA = {
    "platform_key": pl.String,
    "model_a": pl.String,
    "model_b": pl.String,
    "n_a": pl.Int64,
    "n_b": pl.Int64,
    "verdict": pl.String,
    "ratio": pl.Float64,
    "ratio_low": pl.Float64,
    "ratio_high": pl.Float64,
    "u": pl.Float64,
    "p_value": pl.Float64,
    "p_adjusted": pl.Float64,
    "p_not_slower": pl.Float64,
    "p_not_faster": pl.Float64,
    "p_same_adjusted": pl.Float64,
    "detectable_ratio": pl.Float64,
    "more_repeats": pl.Int64,
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
class ModelPair(Change):
    """Two models on one platform; a test that could not be made is `None`, with the reason.

    Attributes:
        n_paired: repeats with the same number in one sweep, which the signed-rank test uses.
    """

    platform_key: str
    model_a: str
    model_b: str
    n_paired: int | None = None
    wilcoxon_p: float | None = None
    wilcoxon_p_adjusted: float | None = None
    cohens_d: float | None = None
    hotelling_t2: float | None = None
    hotelling_p: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignificanceResult:
    """Tests of pairs of models, p adjusted over them; `None` if too many pairs match."""

    pairs: tuple[ModelPair, ...] | None


def significance(session: Session) -> SignificanceResult:
    """Tests and effect sizes for the pairs of models that the settings name, or near ones.

    Raises the errors of `Session.comparable`.
    """
    # Counting a million pairs would take too long.
    samples = list(itertools.islice(model_pairs(session), MAX_LISTED_PAIRS + 1))
    if len(samples) > MAX_LISTED_PAIRS:
        return SignificanceResult(pairs=None)
    limits = limits_of(session.selection)
    changes = judge_changes(((a.latency, b.latency) for a, b in samples), limits)
    tested = [_tested(a, b, change) for (a, b), change in zip(samples, changes, strict=True)]
    adjusted = adjust_p([pair.wilcoxon_p for pair in tested])
    return SignificanceResult(
        pairs=tuple(
            replace(pair, wilcoxon_p_adjusted=p) for pair, p in zip(tested, adjusted, strict=True)
        )
    )


def limits_of(selection: Selection) -> Limits:
    """The margin that the user set, else the default.

    Raises:
        AnalysisError: the margin is not above 0 and below 10.
    """
    margin = setting(selection, "margin", DEFAULT_MARGIN)
    if not 0 < margin < 10:
        raise AnalysisError(f"margin {margin:g} is out of range", "such as `set margin=0.05`")
    return Limits(margin=margin, alpha=DEFAULT_ALPHA)


def significance_table(session: Session) -> Table:
    """Tests and effect sizes for pairs of models with near medians, platform by platform.

    Settings: `model_a`, `model_b` name the models (`*` matches any text), `within` the largest
    difference of medians listed when neither is named, `margin` the largest difference of no
    interest. `source` and `source_tier` choose platforms.
    """
    pairs = significance(session).pairs
    hidden: tuple[str, ...] = ()
    if pairs is None:
        hidden = (
            f"More than {MAX_LISTED_PAIRS} pairs of models match and are not listed: choose "
            "fewer with `source=`, `model=` or `set within=0.05`.",
        )
    limits = limits_of(session.selection)
    frame = pl.DataFrame([asdict(pair) for pair in pairs or ()], schema=_SCHEMA)
    return Table(
        title="Significance between models",
        frame=worded_verdicts(frame, limits),
        notes=(*session.comparable.notes, *hidden, chosen_note(session.selection)),
        explanation=(*_MEANING, *verdict_meaning(limits)),
    )


def _tested(a: ModelSample, b: ModelSample, change: Change) -> ModelPair:
    pair = ModelPair(platform_key=a.platform, model_a=a.model, model_b=b.model, **asdict(change))
    reasons = [change.reason, _other_session(a, b)]
    if change.p_value is None:
        return replace(pair, reason=_joined(reasons))
    n_paired, wilcoxon_p = _paired(a, b)
    d = cohens_d(a.latency, b.latency)
    both, no_both = _both_measures(a, b)
    reasons += [
        None if wilcoxon_p is not None
        else f"no Wilcoxon: {n_paired} paired repeats, at least {MIN_PAIRS} needed",
        None if d is not None else "no Cohen's d: neither side varies",
        no_both,
    ]  # fmt: skip
    return replace(
        pair,
        n_paired=n_paired,
        wilcoxon_p=wilcoxon_p,
        cohens_d=d,
        hotelling_t2=None if both is None else both.t2,
        hotelling_p=None if both is None else both.p_value,
        reason=_joined(reasons),
    )


def _joined(reasons: Iterable[str | None]) -> str | None:
    return "; ".join(reason for reason in reasons if reason) or None


def _other_session(a: ModelSample, b: ModelSample) -> str | None:
    """A text if no sweep measured both: the sessions' difference is then part of the ratio."""
    sweeps_a, sweeps_b = ({run.rpartition(" #")[0] for run in one.runs} for one in (a, b))
    return None if sweeps_a & sweeps_b else "measured in different sessions"


def _paired(a: ModelSample, b: ModelSample) -> tuple[int, float | None]:
    """Number of paired repeats, and the p of their signed-rank test."""
    at_b = {run: position for position, run in enumerate(b.runs)}
    common = [(i, at_b[run]) for i, run in enumerate(a.runs) if run in at_b]
    if len(common) < MIN_PAIRS:
        return len(common), None
    here, there = np.array(common).T
    return len(common), wilcoxon(b.latency[there] - a.latency[here])


def _both_measures(a: ModelSample, b: ModelSample) -> tuple[TSquared | None, str | None]:
    """The test of latency and accuracy together, or the reason why there is none."""
    accuracies = (a.accuracy, b.accuracy)
    if any(np.isnan(accuracy).any() or np.ptp(accuracy) == 0 for accuracy in accuracies):
        return None, "no T2: accuracy was not measured with variance"
    found = hotelling_t2(*(np.column_stack([one.latency, one.accuracy]) for one in (a, b)))
    return found, "no T2: latency and accuracy do not both vary" if found is None else None
