"""Verdicts on changes of a latency: slower, faster, the same within a margin, or undecided."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from fleetrank.analysis.arrays.bootstrap import adjust_p
from fleetrank.analysis.arrays.detectable_change import detectable_ratio
from fleetrank.analysis.arrays.equivalence import (
    MAX_PLANNED,
    MIN_FOR_VARIANCE,
    Limits,
    LogRatio,
    log_ratio,
    one_sided_p,
    ratio_interval,
    repeats_to_decide,
)
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.arrays.significance import MIN_PROCESSES, cliffs_delta, mann_whitney
from fleetrank.foundation.wording import count_of

DEFAULT_MARGIN = 0.02
"""Smaller changes are not useful: medians of two processes on a quiet machine differ by 4 %."""
DEFAULT_ALPHA = 0.05
"""Accepted share of wrong claims among the changes with one kind of verdict."""


class Verdict(StrEnum):
    """The result of a comparison. Exactly one applies, the first whose condition holds."""

    SLOWER = "slower"
    """The rank test's adjusted p is at most alpha, and the ratio is at least 1 + margin."""
    FASTER = "faster"
    """The same, and the ratio is at most 1 / (1 + margin)."""
    UNDECIDED = "undecided"
    """Neither a change nor its absence is shown."""
    SAME = "same"
    """Two one-sided tests show that the ratio is inside the margin: adjusted p at most alpha."""
    REFUSED = "refused"
    """Measured in both sweeps, but not comparable."""
    ONE_SIDED = "one_sided"
    """Measured in one of the two sweeps only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The latency of b compared with that of a; a missing figure is `None`.

    Attributes:
        n_a, n_b: processes of each side.
        ratio: median of b over median of a; `None` if that of a is 0.
        ratio_low, ratio_high: 1 - 2 alpha interval of the ratio of the geometric means.
        u: pairs of processes in which b is slower.
        cliffs_delta: P(b slower) - P(b faster), -1 to 1.
        p_value: of the two-sided rank test for this change alone; `p_adjusted` is over all.
        p_not_slower, p_not_faster: one-sided p of "slower (faster) by the margin or more".
        p_same_adjusted: the larger of both, adjusted over all changes.
        detectable_ratio: the smallest ratio that a comparison like this finds as a change.
        more_repeats: how many more repeats a side decide it; only if the verdict is undecided,
            and `None` if they are too many or the variance is not known.
    """

    verdict: Verdict
    n_a: int | None = None
    n_b: int | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    u: float | None = None
    cliffs_delta: float | None = None
    p_value: float | None = None
    p_adjusted: float | None = None
    p_not_slower: float | None = None
    p_not_faster: float | None = None
    p_same_adjusted: float | None = None
    detectable_ratio: float | None = None
    more_repeats: int | None = None
    reason: str | None = None


Samples = tuple[Floats, Floats]
"""Process medians of both sides, (n_a,) and (n_b,)."""


def judge_changes(samples: Iterable[Samples], limits: Limits) -> tuple[Change, ...]:
    """The verdict on each pair of samples, with p-values adjusted over all of them.

    Benjamini-Hochberg adjusts the rank tests and the tests of sameness separately: alpha is the
    accepted share of wrong claims among the slower and faster ones, and among the same ones.
    """
    pairs = list(samples)
    found = [log_ratio(a, b) for a, b in pairs]
    tested = [_tested(pair, ratio, limits) for pair, ratio in zip(pairs, found, strict=True)]
    p_values = adjust_p([change.p_value for change in tested])
    p_same = adjust_p([_p_same(change) for change in tested])
    changes = [
        replace(change, p_adjusted=p, p_same_adjusted=same)
        for change, p, same in zip(tested, p_values, p_same, strict=True)
    ]
    changes = [
        replace(
            change,
            verdict=verdict_of(change.ratio, change.p_adjusted, change.p_same_adjusted, limits),
        )
        for change in changes
    ]
    levels = _levels(changes, limits)
    return tuple(
        _planned(change, ratio, levels) for change, ratio in zip(changes, found, strict=True)
    )


def _tested(pair: Samples, found: LogRatio | None, limits: Limits) -> Change:
    a, b = pair
    median_a = float(np.median(a))
    change = Change(
        verdict=Verdict.UNDECIDED,
        n_a=a.size,
        n_b=b.size,
        ratio=float(np.median(b)) / median_a if median_a > 0 else None,
    )
    if found is not None:
        low, high = ratio_interval(found, limits.alpha)
        slower, faster = one_sided_p(found, limits.margin)
        change = replace(
            change, ratio_low=low, ratio_high=high, p_not_slower=slower, p_not_faster=faster
        )
    if min(a.size, b.size) < MIN_PROCESSES:
        return change
    u, p_value = mann_whitney(a, b)
    return replace(change, u=u, p_value=p_value, cliffs_delta=cliffs_delta(a, b))


def _p_same(change: Change) -> float | None:
    if change.p_not_slower is None or change.p_not_faster is None:
        return None
    return max(change.p_not_slower, change.p_not_faster)


def verdict_of(
    ratio: float | None, p: float | None, p_same: float | None, limits: Limits
) -> Verdict:
    """The verdict by the rules of `Verdict`; a test that was not possible has no p.

    Args:
        ratio: latency of b over that of a.
        p: of the test for a change.
        p_same: the larger p of the two one-sided tests.
        limits: margin and level.
    """
    if ratio is not None and p is not None and p <= limits.alpha:
        if ratio >= 1 + limits.margin:
            return Verdict.SLOWER
        if ratio <= 1 / (1 + limits.margin):
            return Verdict.FASTER
    if p_same is not None and p_same <= limits.alpha:
        return Verdict.SAME
    return Verdict.UNDECIDED


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


def _planned(change: Change, found: LogRatio | None, levels: _Levels) -> Change:
    """Adds the detectable ratio and, where nothing is decided, the repeats that decide it."""
    n_a, n_b = change.n_a or 0, change.n_b or 0
    fewest = min(n_a, n_b)
    if found is None:
        return replace(change, reason=_no_variance(fewest))
    change = replace(change, detectable_ratio=detectable_ratio(found, n_a, n_b, levels.single))
    if change.verdict is Verdict.SAME and _is_claimed(change.p_adjusted, levels):
        return replace(change, reason="a difference, but smaller than the margin")
    if change.verdict is not Verdict.UNDECIDED:
        return change
    is_near = abs(found.estimate) < levels.same.bound
    total = repeats_to_decide(
        found,
        levels.same if is_near else levels.change,
        least=fewest + 1 if is_near else max(fewest + 1, MIN_PROCESSES),
    )
    more = None if total is None else total - fewest
    return replace(change, more_repeats=more, reason=_reason(change, more, levels))


def _no_variance(n: int) -> str:
    if n >= MIN_FOR_VARIANCE:
        return "a latency of 0 has no ratio"
    few = count_of(n, "process", "processes")
    return f"{few}: too few for a variance, at least {MIN_PROCESSES} a side needed"


def _reason(change: Change, more: int | None, levels: _Levels) -> str:
    """Why nothing is decided, and what decides it."""
    decides = (
        f"more than {MAX_PLANNED} repeats a side needed"
        if more is None
        else f"{count_of(more, 'more repeat')} a side decide it"
    )
    if change.p_value is None:
        few = count_of(min(change.n_a or 0, change.n_b or 0), "process", "processes")
        return f"{few}, at least {MIN_PROCESSES} a side needed to find a change; {decides}"
    if not _is_claimed(change.p_value, levels):
        return decides
    if not _is_claimed(change.p_adjusted, levels):
        return f"unlikely alone, but possible by chance among so many cells; {decides}"
    return f"a difference, but not shown to be inside the margin; {decides}"


def _is_claimed(p: float | None, levels: _Levels) -> bool:
    return p is not None and p <= levels.alpha
