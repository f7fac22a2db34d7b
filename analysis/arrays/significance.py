"""Tests and effect sizes between two samples of process medians, on arrays.

Exact tests include the observed ties: their null distribution is counted from the actual ranks, not
taken from a table for samples without ties.
"""

import functools
import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from fleetrank.analysis.arrays.ranking import Floats, average_ranks, require_finite

MIN_PROCESSES = 5
"""Minimum of each side. Complete separation gives p = 0.1 at 3 a side, 0.029 at 4 and 0.008 at 5:
below 5 no result stays significant after a correction over several pairs."""
MIN_PAIRS = 6
"""Minimum of a signed-rank test: 5 differences of one sign give p = 2 / 2^5 = 0.0625."""
MAX_EXACT = 60
"""Values in both samples together; beyond, the normal approximation errs in the third digit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TSquared:
    """Hotelling's test of two vectors of means; `f` has (p, n_a + n_b - p - 1) degrees."""

    t2: float
    f: float
    p_value: float


def mann_whitney(a: Floats, b: Floats) -> tuple[float, float]:
    """U of `b` over `a`, how many pairs have b > a (a tie is half), and the two-sided exact p.

    Of (n_a,) and (n_b,). The p doubles the smaller tail.
    Source: Mann and Whitney 1947; with ties the conditional distribution, Lehmann 1975, 1.4.
    """
    require_finite(np.concatenate([a, b]))
    u = float((b[:, None] > a).sum() + (b[:, None] == a).sum() / 2)
    if a.size + b.size > MAX_EXACT:
        from scipy import stats

        result = stats.mannwhitneyu(b, a, method="asymptotic")
        return u, 1.0 if math.isnan(result.pvalue) else float(result.pvalue)
    ranks = _doubled_ranks(np.concatenate([a, b]))
    low, high = _tails(_subset_sums(tuple(sorted(ranks)), b.size), sum(ranks[a.size :]))
    return u, min(1.0, 2 * min(low, high))


def smallest_p(n_a: int, n_b: int) -> float:
    """The smallest p of `mann_whitney` for these sizes: complete separation without ties."""
    return min(1.0, 2 / math.comb(n_a + n_b, n_a))


def smallest_significant_u(n_a: int, n_b: int, alpha: float) -> int | None:
    """The smallest U above the middle with p <= alpha for `mann_whitney` without ties.

    `None` if no U has such a p. For at most `MAX_EXACT` values in both samples.
    """
    # Doubled, because `_subset_sums` counts doubled ranks.
    ranks = tuple(range(2, 2 * (n_a + n_b) + 1, 2))
    by_u = _subset_sums(ranks, n_b)[n_b * (n_b + 1) :: 2][: n_a * n_b + 1]
    p_values = 2 * by_u[::-1].cumsum()[::-1]
    found = np.flatnonzero(p_values <= alpha)
    return int(found[0]) if found.size else None


def wilcoxon(differences: Floats) -> float:
    """Two-sided exact p of the signed-rank test of (n,) paired differences; zeros are left out.

    1 when all are zero. Source: Wilcoxon 1945; ties share ranks and the distribution is theirs.
    """
    require_finite(differences)
    known = differences[differences != 0]
    if known.size == 0:
        return 1.0
    if known.size > MAX_EXACT:
        from scipy import stats

        return float(stats.wilcoxon(known, method="asymptotic").pvalue)
    ranks = _doubled_ranks(np.abs(known))
    positive = sum(rank for rank, value in zip(ranks, known, strict=True) if value > 0)
    low, high = _tails(_signed_sums(tuple(sorted(ranks))), positive)
    return min(1.0, 2 * min(low, high))


def cohens_d(a: Floats, b: Floats) -> float | None:
    """(mean of b - mean of a) / pooled standard deviation (n - 1); `None` without any spread.

    Source: Cohen 1988, 2.5.
    """
    # This checks the values, because rounding gives equal values a small variance.
    if np.ptp(a) == 0 and np.ptp(b) == 0:
        return None
    spread = _pooled(a[:, None], b[:, None])[0, 0]
    return float((b.mean() - a.mean()) / math.sqrt(spread))


def cliffs_delta(a: Floats, b: Floats) -> float:
    """P(b > a) - P(b < a) over all pairs, -1 to 1. Source: Cliff 1993."""
    return float(np.sign(b[:, None] - a).mean())


def hotelling_t2(a: Floats, b: Floats) -> TSquared | None:
    """Two-sample T2 of (n_a, p) and (n_b, p) with one pooled covariance.

    `None` when a measure does not vary or the samples are too small for p measures.
    Source: Hotelling 1931; Anderson 2003, 5.3.
    """
    (n_a, size), n_b = a.shape, b.shape[0]
    degrees = n_a + n_b - size - 1
    if degrees < 1:
        return None
    pooled = _pooled(a, b)
    if np.linalg.matrix_rank(_scaled(pooled)) < size:
        return None
    shift = b.mean(axis=0) - a.mean(axis=0)
    t2 = float(n_a * n_b / (n_a + n_b) * shift @ np.linalg.solve(pooled, shift))
    f = t2 * degrees / (size * (n_a + n_b - 2))
    from scipy import stats  # half a second that other tests do not need

    return TSquared(t2=t2, f=f, p_value=float(stats.f.sf(f, size, degrees)))


def _pooled(a: Floats, b: Floats) -> Floats:
    centred = np.concatenate([a - a.mean(axis=0), b - b.mean(axis=0)])
    covariance: Floats = centred.T @ centred / (a.shape[0] + b.shape[0] - 2)
    return covariance


def _scaled(covariance: Floats) -> Floats:
    """Correlations: nanoseconds and per cents differ by more than the rank's tolerance."""
    scale = np.sqrt(np.diag(covariance))
    scale[scale == 0] = 1.0
    correlation: Floats = covariance / np.outer(scale, scale)
    return correlation


def _doubled_ranks(values: Floats) -> list[int]:
    """Twice the average ranks: whole numbers, so that sums are counted exactly."""
    ranks: list[int] = np.rint(2 * average_ranks(values[:, None])[:, 0]).astype(np.int64).tolist()
    return ranks


@functools.lru_cache(maxsize=256)
def _subset_sums(ranks: tuple[int, ...], size: int) -> Floats:
    """Probability of each sum if `size` of the ranks are drawn, (sum of ranks + 1,)."""
    ways = np.zeros((size + 1, sum(ranks) + 1))
    ways[0, 0] = 1.0
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, : ways.shape[1] - rank].copy()
    probabilities: Floats = ways[size] / ways[size].sum()
    return probabilities


@functools.lru_cache(maxsize=256)
def _signed_sums(ranks: tuple[int, ...]) -> Floats:
    """Probability of each sum of positive ranks if signs are random, (sum + 1,)."""
    ways = np.zeros(sum(ranks) + 1)
    ways[0] = 1.0
    for rank in ranks:
        ways[rank:] += ways[: ways.size - rank].copy()
        ways /= 2
    return ways


def _tails(probabilities: Floats, observed: int) -> tuple[float, float]:
    """P(sum <= observed) and P(sum >= observed)."""
    return float(probabilities[: observed + 1].sum()), float(probabilities[observed:].sum())


# Is the ratio of two latencies inside a margin? Tests and plans on logs of process medians.
#
# A test without a significant result shows nothing: it may have had too few repeats. Two
# one-sided tests show that a ratio is inside a margin. `repeats_to_decide` says how many repeats
# they need.

MIN_FOR_VARIANCE = 3
"""Fewest processes a side: the variance of 2 has one degree of freedom, and t is 6.3 at 5 %."""
MIN_ROUNDS = 2
"""Fewest of models that took turns: their variance is pooled, with 2 degrees of freedom."""
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


def log_ratio(a: Floats, b: Floats, least: int = MIN_FOR_VARIANCE) -> LogRatio | None:
    """Log of the geometric mean of `b` over that of `a`, of (n_a,) and (n_b,) values above 0.

    `None` with fewer than `least` values on a side, or with a value of 0.
    The sides may vary differently: Welch 1947, with the degrees of freedom of Satterthwaite 1946.
    """
    require_finite(np.concatenate([a, b]))
    if min(a.size, b.size) < least or min(a.min(), b.min()) <= 0:
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


def pooled_log_ratio(a: Floats, b: Floats) -> LogRatio | None:
    """`log_ratio` of samples with one variance (Student), as those of models that took turns."""
    found = log_ratio(a, b, MIN_ROUNDS)
    if found is None:
        return None
    degrees = a.size + b.size - 2
    variance = ((a.size - 1) * found.variance_a + (b.size - 1) * found.variance_b) / degrees
    error = math.sqrt(variance / a.size + variance / b.size)
    return replace(
        found, variance_a=variance, variance_b=variance, standard_error=error, degrees=degrees
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
        return min(
            (same_power if truth < limits.bound else change_power)(truth, found, n, limits)
            for truth in truths
        )

    return first_enough(reached, range(least, MAX_PLANNED + 1))


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


# The smallest change that a comparison of process medians can find.

_DRAWS = 4000
"""Random pairs of samples: the standard error of the shift is about 1 % of it."""


def detectable_ratio(found: LogRatio, n_a: int, n_b: int, alpha: float) -> float | None:
    """The smallest ratio that the rank test finds with probability `POWER` at this noise.

    Its inverse is the largest ratio below 1. `None` if the test can find nothing: too few
    processes for this level, two-sided. Log latencies of processes are taken as normal.
    """
    if min(n_a, n_b) < MIN_PROCESSES:
        return None
    shift = _detectable_shift(n_a, n_b, alpha)
    spread = math.sqrt((found.variance_a + found.variance_b) / 2)
    return None if shift is None else math.exp(shift * spread)


@functools.lru_cache(maxsize=256)
def _detectable_shift(n_a: int, n_b: int, alpha: float) -> float | None:
    """The shift in standard deviations that is found with probability `POWER`.

    By random samples, because the test is exact and its levels are few; beyond `MAX_EXACT` values
    by the normal approximation. Source: Noether 1987, with the efficiency of Lehmann 1975, 2.4.
    """
    if n_a + n_b > MAX_EXACT:
        needed = special.ndtri(1 - alpha / 2) + special.ndtri(POWER)
        return float(needed * math.sqrt(math.pi / 3 * (1 / n_a + 1 / n_b)))
    u = smallest_significant_u(n_a, n_b, alpha)
    if u is None:
        return None
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(_DRAWS, n_a, 1)), rng.normal(size=(_DRAWS, 1, n_b))
    # A shift of b puts every pair whose difference is smaller than it into the right order.
    differences = np.sort((a - b).reshape(_DRAWS, -1), axis=1)
    return float(np.quantile(differences[:, u - 1], POWER))


def paired_loss_difference(losses: Floats, counts: Floats) -> tuple[float, float, float]:
    """The difference of two losses per item, and its 95 % interval.

    The interval is NaN below `MIN_FOR_VARIANCE` parts.

    Args:
        losses: (n_parts,) second loss minus the first, summed over the items of each part.
        counts: (n_parts,) items of each part.

    Source: Cochran 1977, Sampling Techniques, 6.4: the ratio of two sums over parts.
    """
    mean, n_parts = float(losses.sum() / counts.sum()), losses.size
    if n_parts < MIN_FOR_VARIANCE:
        return mean, math.nan, math.nan
    squares = float(((losses - mean * counts) ** 2).sum())
    error = math.sqrt(n_parts / (n_parts - 1) * squares) / float(counts.sum())
    half = float(special.stdtrit(n_parts - 1, 0.975)) * error
    return mean, mean - half, mean + half


def paired_share_difference(n_lost: int, n_gained: int, n: int) -> tuple[float, float, float]:
    """The second share minus the first over the same `n` items, and its 95 % interval.

    Args:
        n_lost: items right in the first only.
        n_gained: items right in the second only.
        n: all items, at least one.

    Source: Bonett and Price 2012, adjusted Wald interval of paired proportions.
    """
    lost, gained = (n_lost + 1) / (n + 2), (n_gained + 1) / (n + 2)
    half = special.ndtri(0.975) * math.sqrt((lost + gained - (gained - lost) ** 2) / (n + 2))
    middle = gained - lost
    return (n_gained - n_lost) / n, max(-1.0, middle - half), min(1.0, middle + half)
