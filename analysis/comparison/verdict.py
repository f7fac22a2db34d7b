"""Is B slower than A? One verdict over two samples, whatever they come from.

Slower, faster, the same within a margin, or undecided: of two sweeps, of two models, or of models
that took turns.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.bootstrap import adjust_p
from fleetrank.analysis.arrays.planned_repeats import (
    RepeatPlan,
    detectable_ratio,
    repeats_to_decide,
)
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.arrays.two_samples import (
    MAX_PLANNED,
    OWN_DEGREES,
    POWER,
    PRIOR_DEGREES,
    PRIOR_SPREAD,
    Figures,
    Limits,
    LogRatios,
    Verdict,
    ratios_of,
    shown,
)
from fleetrank.analysis.tables.table import explained
from fleetrank.foundation.wording import count_of

_SESSIONS_HIDE = (
    "two sessions spread too much for any number of repeats: measure both in one session "
    "(`fleetrank ab A B`), or store more sweeps of the same models, which show the spread"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The latency of b compared with that of a; a missing figure is `None`.

    Attributes:
        n_a, n_b: processes of each side.
        ratio: figure of b over that of a: of the medians of processes, or, of models that took
            turns, of their geometric means. `None` if one is 0.
        ratio_low, ratio_high: its 1 - alpha interval.
        p_value: of "the ratio is 1" for this change alone; `p_adjusted` is over all.
        p_not_slower, p_not_faster: one-sided p of "slower (faster) by the margin or more".
        p_same_adjusted: twice the larger of both, adjusted over all changes.
        detectable_ratio: the smallest ratio that a comparison like this finds as a change.
        more_repeats: how many more repeats a side decide it; only if the verdict is undecided,
            and `None` if they are too many, if no number removes the spread between sessions, or
            if nothing shows the spread.
    """

    verdict: Verdict
    n_a: int | None = None
    n_b: int | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    p_value: float | None = None
    p_adjusted: float | None = None
    p_not_slower: float | None = None
    p_not_faster: float | None = None
    p_same_adjusted: float | None = None
    detectable_ratio: float | None = None
    more_repeats: int | None = None
    reason: str | None = None


def verdicts(
    a: Figures, b: Figures, limits: Limits, between: tuple[Floats, Floats] | None = None
) -> tuple[Change, ...]:
    """The verdict on each pair of figures, (n_pairs,) of both sides.

    Of two sessions, `between` is what they add (`LogRatios`).

    Benjamini-Hochberg adjusts the p of a change and those of sameness separately: alpha is the
    accepted share of wrong claims among the slower and faster ones, and among the same ones.
    """
    return verdicts_on(ratios_of(a, b, between), (a, b), limits)


def verdicts_on(
    found: LogRatios, sides: tuple[Figures, Figures], limits: Limits
) -> tuple[Change, ...]:
    """The verdicts on ratios whose errors contain more than those of both sides."""
    reach, p_values = found.reach(limits.alpha), found.p_different()
    not_slower, not_faster = found.p_margin(limits.bound)
    p_same = np.minimum(2 * np.maximum(not_slower, not_faster), 1.0)
    adjusted, same = (adjust_p(_known(one)) for one in (p_values, p_same))
    p_change, p_alike = (np.array(one, dtype=np.float64) for one in (adjusted, same))
    words = shown(found, p_change, p_alike, least=limits.bound, alpha=limits.alpha)
    figures = {
        "ratio": np.exp(found.estimates),
        "ratio_low": np.exp(found.estimates - reach),
        "ratio_high": np.exp(found.estimates + reach),
        "p_value": p_values,
        "p_adjusted": p_change,
        "p_not_slower": not_slower,
        "p_not_faster": not_faster,
        "p_same_adjusted": p_alike,
    }
    rows = zip(*(_known(one) for one in figures.values()), strict=True)
    numbers = zip(sides[0].n.tolist(), sides[1].n.tolist(), strict=True)
    changes = [
        Change(
            verdict=Verdict(word),
            n_a=n_a,
            n_b=n_b,
            **dict[str, Any](zip(figures, row, strict=True)),
        )
        for word, (n_a, n_b), row in zip(words, numbers, rows, strict=True)
    ]
    levels, plans = _levels(changes, limits), _plans(found, sides)
    return tuple(
        _planned(change, plan, levels) for change, plan in zip(changes, plans, strict=True)
    )


def _known(values: Floats) -> list[float | None]:
    return [None if math.isnan(one) else one for one in values.tolist()]


def _plans(found: LogRatios, sides: tuple[Figures, Figures]) -> Iterator[RepeatPlan]:
    a, b = sides
    own = ratios_of(a, b).degrees
    reach, degrees = found.between or (np.zeros(own.shape), own)
    for at in range(own.size):
        yield RepeatPlan(
            estimate=float(found.estimates[at]),
            error=float(found.errors[at]),
            degrees=float(found.degrees[at]),
            variances=(float(a.variance[at]), float(b.variance[at])),
            n=int(min(a.n[at], b.n[at])),
            took_turns=bool(a.took_turns[at] and b.took_turns[at]),
            between=(float(reach[at]), float(degrees[at]), float(own[at])) if reach[at] else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Levels:
    """Levels of one more claim, after k claims among m tests: alpha (k + 1) / m, at most alpha.

    Attributes:
        single: of a change that is the only one among all tested, alpha / m.
        alpha: of one test alone.
    """

    change: Limits
    same: Limits
    single: float
    alpha: float


def _levels(changes: Sequence[Change], limits: Limits) -> _Levels:
    of_change = [change.p_adjusted for change in changes if change.p_adjusted is not None]
    of_same = [change.p_same_adjusted for change in changes if change.p_same_adjusted is not None]
    return _Levels(
        change=_next_level(limits, of_change),
        same=_next_level(limits, of_same),
        single=limits.alpha / max(len(of_change), 1),
        alpha=limits.alpha,
    )


def _next_level(limits: Limits, adjusted: Sequence[float]) -> Limits:
    claims = sum(p <= limits.alpha for p in adjusted)
    return replace(limits, alpha=limits.alpha * (claims + 1) / max(len(adjusted), claims + 1))


def _planned(change: Change, plan: RepeatPlan, levels: _Levels) -> Change:
    """Adds the detectable ratio and, where nothing is decided, the repeats that decide it."""
    if change.p_value is None:
        return replace(change, reason=_no_figure(change))
    change = replace(change, detectable_ratio=detectable_ratio(plan, levels.single))
    if change.verdict is Verdict.SAME and _is_claimed(change.p_adjusted, levels):
        return replace(change, reason="a difference, but smaller than the margin")
    if change.verdict is not Verdict.UNDECIDED:
        return change
    is_near = abs(plan.estimate) < levels.same.bound
    limits = levels.same if is_near else levels.change
    total = repeats_to_decide(plan, limits)
    if total is not None:
        decides = f"{count_of(total - plan.n, 'more repeat')} a side decide it"
    elif plan.between and repeats_to_decide(replace(plan, between=None), limits) is not None:
        decides = _SESSIONS_HIDE
    else:
        decides = f"more than {MAX_PLANNED} repeats a side needed"
    return replace(
        change,
        more_repeats=None if total is None else total - plan.n,
        reason=_reason(change, decides, levels),
    )


def _no_figure(change: Change) -> str:
    if change.ratio is None:
        return "a latency of 0 has no ratio"
    few = count_of(min(change.n_a or 0, change.n_b or 0), "process", "processes")
    return f"{few}: nothing shows their spread, at least 2 of a cell needed"


def _reason(change: Change, decides: str, levels: _Levels) -> str:
    """Why nothing is decided, and what decides it."""
    if not _is_claimed(change.p_value, levels):
        return decides
    if not _is_claimed(change.p_adjusted, levels):
        return f"unlikely alone, but possible by chance among so many cells; {decides}"
    return f"a difference, but not shown to be inside the margin; {decides}"


def _is_claimed(p: float | None, levels: _Levels) -> bool:
    return p is not None and p <= levels.alpha


def percent(share: float) -> str:
    """`5 %`, with at most three digits."""
    return f"{100 * share:.3g} %"


def verdict_words(verdict: Verdict, limits: Limits) -> str:
    """The verdict as a reader sees it: a sameness always with its margin."""
    if verdict is Verdict.SAME:
        return f"same within {percent(limits.margin)}"
    return verdict.value.replace("_", "-")


def worded_verdicts(frame: pl.DataFrame, limits: Limits) -> pl.DataFrame:
    """The frame with the column `verdict` in words."""
    words = {verdict.value: verdict_words(verdict, limits) for verdict in Verdict}
    return frame.with_columns(pl.col("verdict").replace(words))


def verdict_meaning(limits: Limits, part: str = "compare/verdict") -> tuple[str, ...]:
    """What the verdicts and their figures mean, or another text about them."""
    return explained(
        part,
        {
            "margin": percent(limits.margin),
            "alpha": limits.alpha,
            "level": percent(1 - limits.alpha),
            "power": percent(POWER),
            "own_sessions": OWN_DEGREES + 1,
            "prior_spread": percent(PRIOR_SPREAD),
            "prior_sessions": PRIOR_DEGREES,
        },
    )
