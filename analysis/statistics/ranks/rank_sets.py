"""Sets of ranks that hold the true ranks of all models at once, and shares of devices."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from fleetrank.analysis.arrays.ranking import Floats, block_size, require_finite

Ranks = npt.NDArray[np.int64]

_DRAWS = 2000
"""The 95 % quantile of this many draws has a standard error of half a per cent of probability."""
_LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSets:
    """Ranks of (n_models,), 1 is the smallest value; each set is `low` to `high`.

    All true ranks lie in their sets at once with a probability of at least 95 %.
    """

    rank: Ranks
    low: Ranks
    high: Ranks


def rank_sets(means: Floats, errors: Floats, degrees: Floats, rng: np.random.Generator) -> RankSets:
    """Simultaneous confidence sets for the ranks of independent means.

    Two models are in order if the studentised difference of their means exceeds a critical value:
    the 95 % quantile of the largest one of all pairs without any true difference. Pairs that are
    in order are then left out, and the rest is tested again, until no pair is added.

    Args:
        means: (n_models,), smaller is better.
        errors: standard error of each mean, above 0.
        degrees: degrees of freedom of each error, `inf` for a known one.
        rng: draws the critical values.

    Source: Mogstad, Romano, Shaikh and Wilhelm 2024, algorithm 3.2 with the step-down of Romano and
    Wolf 2005; normal draws, each error drawn with its degrees of freedom.
    """
    require_finite(means)
    z = rng.standard_normal((_DRAWS, means.size)) * errors
    drawn = errors**2 * _chi_square_ratio(degrees, rng)
    observed = _studentised(means[None], errors[None] ** 2)[0]
    is_open = ~np.eye(means.size, dtype=np.bool_)
    while is_open.any():
        found = is_open & (observed > _critical(z, drawn, is_open))
        if not found.any():
            break
        is_open &= ~found
    is_above = ~is_open & ~np.eye(means.size, dtype=np.bool_)
    rank: Ranks = stats.rankdata(means, method="min").astype(np.int64)
    return RankSets(rank=rank, low=1 + is_above.sum(axis=1), high=means.size - is_above.sum(axis=0))


def _chi_square_ratio(degrees: Floats, rng: np.random.Generator) -> Floats:
    """Draws of an estimated variance over the true one, (draws, n_models)."""
    known = np.isinf(degrees)
    finite = np.where(known, 1.0, degrees)
    ratio: Floats = rng.chisquare(finite, (_DRAWS, degrees.size)) / finite
    return np.where(known, 1.0, ratio)


def _studentised(means: Floats, variances: Floats) -> Floats:
    """(mean of i - mean of k) / its error, (draws, n_models, n_models)."""
    differences = means[:, :, None] - means[:, None, :]
    studentised: Floats = differences / np.sqrt(variances[:, :, None] + variances[:, None, :])
    return studentised


def _critical(z: Floats, variances: Floats, is_open: npt.NDArray[np.bool_]) -> float:
    """The 95 % quantile of the largest difference among the open ordered pairs."""
    step = block_size(z.shape[1], z.shape[1])
    largest = [
        np.where(is_open, _studentised(z[at : at + step], variances[at : at + step]), -np.inf).max(
            axis=(1, 2)
        )
        for at in range(0, z.shape[0], step)
    ]
    return float(np.quantile(np.concatenate(largest), _LEVEL))


def share_interval(hits: int, n: int) -> tuple[float, float]:
    """95 % interval of a probability after `hits` of `n` independent devices.

    A bootstrap over devices gives an interval of width 0 when all devices agree; this one does not.
    Source: Clopper and Pearson 1934: it covers at least 95 % for every n.
    """
    tail = (1 - _LEVEL) / 2
    low = stats.beta.ppf(tail, hits, n - hits + 1) if hits > 0 else 0.0
    high = stats.beta.ppf(1 - tail, hits + 1, n - hits) if hits < n else 1.0
    return float(low), float(high)
