"""Which of two models is slower on a platform, are they the same, or is neither shown?"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.bootstrap import adjust_p
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
from fleetrank.analysis.arrays.two_samples import Limits
from fleetrank.analysis.comparison.verdict import (
    Change,
    verdict_meaning,
    verdicts_on,
    worded_verdicts,
)
from fleetrank.analysis.panel.conditions import MAX_LISTED_PAIRS
from fleetrank.analysis.panel.panel import positions
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.pairs.model_samples import ModelSample, chosen_note, model_pairs
from fleetrank.analysis.statistics.pairs.pair_evidence import stored_figures
from fleetrank.analysis.stored.selection import CHANGE_ALPHA, MARGIN, Selection, margin_of
from fleetrank.analysis.tables.table import Table, explained, frame_of

_COLUMNS = (
    "platform_key", "model_a", "model_b", "n_a", "n_b", "verdict", "ratio", "ratio_low",
    "ratio_high", "p_value", "p_adjusted", "p_not_slower", "p_not_faster", "p_same_adjusted",
    "detectable_ratio", "more_repeats", "u", "mann_whitney_p", "n_paired", "wilcoxon_p",
    "wilcoxon_p_adjusted", "cohens_d", "cliffs_delta", "hotelling_t2", "hotelling_p", "reason",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPair(Change):
    """Two models on one platform; a test that could not be made is `None`, with the reason.

    Attributes:
        u: pairs of processes in which b is slower, of the newest figures, as the tests below it.
        n_paired: repeats with the same number in one sweep, which the signed-rank test uses.
    """

    platform_key: str
    model_a: str
    model_b: str
    u: float | None = None
    mann_whitney_p: float | None = None
    cliffs_delta: float | None = None
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
    changes = _changes(session, samples, limits)
    tested = [_tested(a, b, change) for (a, b), change in zip(samples, changes, strict=True)]
    adjusted = adjust_p([pair.wilcoxon_p for pair in tested])
    return SignificanceResult(
        pairs=tuple(
            replace(pair, wilcoxon_p_adjusted=p) for pair, p in zip(tested, adjusted, strict=True)
        )
    )


def _changes(
    session: Session, pairs: Sequence[tuple[ModelSample, ModelSample]], limits: Limits
) -> tuple[Change, ...]:
    """By the evidence and the spread that `faster` uses."""
    if not pairs:
        return ()
    models, panel = ([pair[side].model for pair in pairs] for side in (0, 1)), session.panel
    a, b = (positions(panel.models, pl.Series(names)) for names in models)
    columns = positions(panel.keys, pl.Series([one.platform for one, _ in pairs]))
    ratios, sides = stored_figures(session).ratios(a, b, columns)
    return verdicts_on(ratios, sides, limits)


def limits_of(selection: Selection) -> Limits:
    """The margin that the user set, else the default; raises the errors of `margin_of`."""
    return Limits(margin=margin_of(selection, MARGIN), alpha=CHANGE_ALPHA)


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
    frame = frame_of(ModelPair, pairs or ()).select(_COLUMNS)
    return Table(
        title="Significance between models",
        frame=worded_verdicts(frame, limits),
        notes=(*session.comparable.notes, *hidden, chosen_note(session.selection)),
        explanation=(
            *explained("pairs/tests", {"min_processes": MIN_PROCESSES, "min_pairs": MIN_PAIRS}),
            *verdict_meaning(limits),
        ),
    )


def _tested(a: ModelSample, b: ModelSample, change: Change) -> ModelPair:
    pair = ModelPair(platform_key=a.platform, model_a=a.model, model_b=b.model, **asdict(change))
    sweeps_a, sweeps_b = ({run.rpartition(" #")[0] for run in one.runs} for one in (a, b))
    # The difference of the sessions is then part of the ratio.
    is_apart = not sweeps_a & sweeps_b
    reasons = [change.reason, "measured in different sessions" if is_apart else None]
    if min(a.latency.size, b.latency.size) < MIN_PROCESSES:
        few = f"no rank test below {MIN_PROCESSES} processes a side"
        return replace(pair, reason=_joined([*reasons, few]))
    u, rank_p = mann_whitney(a.latency, b.latency)
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
        u=u,
        mann_whitney_p=rank_p,
        cliffs_delta=cliffs_delta(a.latency, b.latency),
        n_paired=n_paired,
        wilcoxon_p=wilcoxon_p,
        cohens_d=d,
        hotelling_t2=None if both is None else both.t2,
        hotelling_p=None if both is None else both.p_value,
        reason=_joined(reasons),
    )


def _joined(reasons: Iterable[str | None]) -> str | None:
    return "; ".join(reason for reason in reasons if reason) or None


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
