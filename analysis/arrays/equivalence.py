"""Is the ratio of two latencies inside a margin? Tests and plans on logs of process medians.

A test without a significant result shows nothing: it may have had too few repeats. Two one-sided
tests show that a ratio is inside a margin. `repeats_to_decide` says how many repeats they need.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special

from fleetrank.analysis.arrays.ranking import Floats, require_finite
from fleetrank.analysis.arrays.significance import MAX_EXACT, smallest_p

MIN_FOR_VARIANCE = 3
"""Fewest processes a side: the variance of 2 has one degree of freedom, and t is 6.3 at 5 %."""
POWER = 0.8
"""Probability of a decision that a number of repeats is planned for (Cohen 1988, 2.4)."""
MAX_PLANNED = 1000
"""Repeats a side: a week of a cell's time at 10 minutes each; another host is the better remedy."""
_RANK_LOSS = math.pi / 3
"""A rank test of normal data needs this many times the observations of a t test (Lehmann 1975)."""
_MEDIAN_LOSS = math.pi / 2
"""Variance of the median of normal data, over that of the mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRatio:
    """Log of the ratio of two geometric means, with its standard error.

    Attributes:
        variance_a, variance_b: of the logs of single processes (n - 1).
        degrees: of freedom by Welch and Satterthwaite; that of the smaller side if nothing varies.
    """

    estimate: float
    variance_a: float
    variance_b: float
    standard_error: float
    degrees: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What counts as a change.

    Attributes:
        margin: the largest relative change that is of no interest, above 0: 0.05 is 5 %. A ratio
            is inside the margin from 1 / (1 + margin) to 1 + margin.
        alpha: probability of a wrong claim, as a false discovery rate over all tested changes.
    """

    margin: float
    alpha: float

    @property
    def bound(self) -> float:
        """The margin as a log ratio."""
        return math.log1p(self.margin)


def log_ratio(a: Floats, b: Floats) -> LogRatio | None:
    """Log of the geometric mean of `b` over that of `a`, of (n_a,) and (n_b,) values above 0.

    `None` with fewer than `MIN_FOR_VARIANCE` values on a side, or with a value of 0.
    The sides may vary differently: Welch 1947, with the degrees of freedom of Satterthwaite 1946.
    """
    require_finite(np.concatenate([a, b]))
    if min(a.size, b.size) < MIN_FOR_VARIANCE or min(a.min(), b.min()) <= 0:
        return None
    logs = np.log(a), np.log(b)
    # Rounding gives equal values a small variance.
    variances = [0.0 if np.ptp(side) == 0 else float(side.var(ddof=1)) for side in logs]
    shares = [variance / side.size for variance, side in zip(variances, logs, strict=True)]
    weights = shares[0] ** 2 / (a.size - 1) + shares[1] ** 2 / (b.size - 1)
    return LogRatio(
        estimate=float(logs[1].mean() - logs[0].mean()),
        variance_a=variances[0],
        variance_b=variances[1],
        standard_error=math.sqrt(sum(shares)),
        degrees=sum(shares) ** 2 / weights if weights > 0 else min(a.size, b.size) - 1,
    )


def paired_log_ratio(differences: Floats) -> LogRatio | None:
    """Log ratio of b to a from pairs that were measured together.

    Args:
        differences: (n,) log of b minus log of a, of each pair. The pairs are independent.

    `None` with fewer than `MIN_FOR_VARIANCE` pairs. `variance_b` is 0: the variance is that of the
    differences.
    """
    require_finite(differences)
    if differences.size < MIN_FOR_VARIANCE:
        return None
    variance = 0.0 if np.ptp(differences) == 0 else float(differences.var(ddof=1))
    return LogRatio(
        estimate=float(differences.mean()),
        variance_a=variance,
        variance_b=0.0,
        standard_error=math.sqrt(variance / differences.size),
        degrees=differences.size - 1,
    )


def two_sided_p(found: LogRatio) -> float:
    """P-value of "the ratio is 1", by Student's t."""
    if found.standard_error == 0:
        return float(found.estimate == 0)
    return float(2 * special.stdtr(found.degrees, -abs(found.estimate) / found.standard_error))


def one_sided_p(found: LogRatio, margin: float) -> tuple[float, float]:
    """P-values of "slower by the margin or more" and "faster by the margin or more".

    A small first one shows that b is not slower than a by the margin (non-inferiority). If both
    are small, the ratio is inside the margin. Source: Schuirmann 1987.
    """
    bound = math.log1p(margin)
    return _p_below(found, bound - found.estimate), _p_below(found, found.estimate + bound)


def ratio_interval(found: LogRatio, alpha: float) -> tuple[float, float]:
    """The 1 - 2 alpha interval of the ratio: inside the margin if both one-sided p < alpha."""
    reach = float(special.stdtrit(found.degrees, 1 - alpha)) * found.standard_error
    return math.exp(found.estimate - reach), math.exp(found.estimate + reach)


def same_power(truth: float, found: LogRatio, n: int, limits: Limits) -> float:
    """Probability that n processes a side show a ratio inside the margin.

    Args:
        truth: the true log ratio.
        found: gives the variances.
        n: processes a side, at least 2.
        limits: margin, and level of each one-sided test.

    Source: Phillips 1990: the difference of two non-central t probabilities.
    """
    error, degrees = _planned(found, n)
    if error == 0:
        return float(abs(truth) < limits.bound)
    t = float(special.stdtrit(degrees, 1 - limits.alpha))
    below = special.nctdtr(degrees, (truth - limits.bound) / error, -t)
    above = special.nctdtr(degrees, (truth + limits.bound) / error, t)
    return max(0.0, float(below - above))


def change_power(truth: float, found: LogRatio, n: int, limits: Limits) -> float:
    """Probability that n processes a side show a change whose estimate is outside the margin.

    The lower of both probabilities: of a significant rank test (its two-sided t test with fewer
    observations), and of a ratio of medians outside the margin. Arguments as in `same_power`.
    """
    error, degrees = _planned(found, n)
    # Binomial coefficients of thousands are slow, and their p is 0 anyway.
    if smallest_p(min(n, MAX_EXACT), min(n, MAX_EXACT)) > limits.alpha:
        return 0.0
    if error == 0:
        return float(abs(truth) >= limits.bound)
    t = float(special.stdtrit(degrees, 1 - limits.alpha / 2))
    at = abs(truth) / (error * math.sqrt(_RANK_LOSS))
    is_found = 1 - special.nctdtr(degrees, at, t)
    is_outside = special.ndtr((abs(truth) - limits.bound) / (error * math.sqrt(_MEDIAN_LOSS)))
    return float(min(is_found, is_outside))


def repeats_to_decide(found: LogRatio, limits: Limits, *, least: int) -> int | None:
    """Processes a side with which a comparison decides with probability `POWER`.

    Planned for the estimated ratio: to show that it is inside the margin, or the change. An
    estimate from few repeats can be far off: if a ratio of half the margin is in its interval,
    the number is also enough to show that one. The variances are taken as true. `None` if it
    needs more than `MAX_PLANNED`; never below `least`.
    """
    size, half = abs(found.estimate), limits.bound / 2
    reach = float(special.stdtrit(found.degrees, 1 - limits.alpha)) * found.standard_error
    truths = (size, half) if size - reach < half else (size,)

    def reached(n: int) -> float:
        return min(_power(truth, found, n, limits) for truth in truths)

    return first_enough(reached, range(least, MAX_PLANNED + 1))


def _power(truth: float, found: LogRatio, n: int, limits: Limits) -> float:
    power = same_power if truth < limits.bound else change_power
    return power(truth, found, n, limits)


def first_enough(power: Callable[[int], float], numbers: range) -> int | None:
    """The first number whose power is at least `POWER`; `None` if that of the last is lower."""
    position = bisect_left(numbers, POWER, key=power)
    return numbers[position] if position < len(numbers) else None


def _p_below(found: LogRatio, distance: float) -> float:
    """P-value of the claim that an estimate this far inside a bound is inside by chance."""
    if found.standard_error == 0:
        return float(distance <= 0)
    return float(special.stdtr(found.degrees, -distance / found.standard_error))


def _planned(found: LogRatio, n: int) -> tuple[float, float]:
    """Standard error and degrees of freedom of n processes a side with the same variances."""
    total = found.variance_a + found.variance_b
    if total == 0:
        return 0.0, n - 1.0
    degrees = (n - 1) * total**2 / (found.variance_a**2 + found.variance_b**2)
    return math.sqrt(total / n), degrees
