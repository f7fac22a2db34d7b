"""Tests and effect sizes between two samples of process medians, on arrays.

Exact tests include the observed ties: their null distribution is counted from the actual ranks, not
taken from a table for samples without ties.
"""

import functools
import math
from dataclasses import dataclass

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


MIN_PARTS = 3
"""Fewest parts: the variance of 2 has one degree of freedom, and t is 6.3 at 5 %."""


def paired_loss_difference(losses: Floats, counts: Floats) -> tuple[float, float, float]:
    """The difference of two losses per item, and its 95 % interval.

    The interval is NaN below `MIN_PARTS` parts.

    Args:
        losses: (n_parts,) second loss minus the first, summed over the items of each part.
        counts: (n_parts,) items of each part.

    Source: Cochran 1977, Sampling Techniques, 6.4: the ratio of two sums over parts.
    """
    mean, n_parts = float(losses.sum() / counts.sum()), losses.size
    if n_parts < MIN_PARTS:
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
