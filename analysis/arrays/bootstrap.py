"""Uncertainty of rank correlations: resampling of models and permutation, for many pairs."""

import functools
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from scipy import stats

from fleetrank.analysis.arrays.ranking import (
    Floats,
    average_ranks,
    block_size,
    products,
    require_finite,
    unit_columns,
)

MIN_MODELS_FOR_INTERVAL = 9
"""Resamples of fewer models have so many repeats that the interval's coverage is unknown."""
MAX_MODELS_FOR_EXACT = 8
"""Up to 8! = 40,320 orders are enumerated; for more models permutations are drawn."""


def resample_counts(n_models: int, draws: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """How often each model is drawn in each resample, (draws, n_models); rows sum to n_models."""
    return rng.multinomial(n_models, np.full(n_models, 1 / n_models), size=draws)


def resampled_units(values: Floats, counts: npt.NDArray[np.int64]) -> Iterator[Floats]:
    """Unit columns of the ranks of (n_models, n_platforms) in every resample of `counts`.

    Ranks are computed again inside each resample, where a model drawn twice ties with itself.
    Yields blocks (some draws, n_models, n_platforms) whose products are Spearman's rho, see
    `ranking.unit_columns`; NaN where a resample is constant.
    """
    step = block_size(*values.shape)
    for start in range(0, counts.shape[0], step):
        some = counts[start : start + step]
        yield _weighted_units(counted_ranks(values, some), some.astype(np.float64))


def counted_ranks(values: Floats, counts: npt.NDArray[np.int64]) -> Floats:
    """Average ranks of each model when it is present `counts` times.

    From (n_models, n_platforms) and (draws, n_models) to (draws, n_models, n_platforms). Sorting
    once per platform serves all draws: the rank follows from cumulative counts.
    """
    require_finite(values)
    ranks = np.empty((*counts.shape, values.shape[1]))
    for column in range(values.shape[1]):
        order = np.argsort(values[:, column], kind="stable")
        in_order = values[order, column]
        is_first = np.append(True, in_order[1:] != in_order[:-1])
        group = np.cumsum(is_first) - 1
        totals = np.add.reduceat(counts[:, order], np.flatnonzero(is_first), axis=1)
        before = np.cumsum(totals, axis=1) - totals
        ranks[:, order, column] = (before + (totals + 1) / 2)[:, group]
    return ranks


def _weighted_units(ranks: Floats, weights: Floats) -> Floats:
    """Unit columns over models (draws, n, p), each counted `weights` (draws, n) times."""
    # A resample may contain no models of a pair; its ranks have no spread, so no unit column
    # exists.
    total = np.maximum(weights.sum(axis=1), 1.0)[:, None, None]
    mean = (weights[:, :, None] * ranks).sum(axis=1, keepdims=True) / total
    centred = np.sqrt(weights)[:, :, None] * (ranks - mean)
    squares = (centred**2).sum(axis=1)
    # Rounding gives a resample of one value a small spread; a real spread is far larger.
    norm = np.where(squares > 1e-9, np.sqrt(squares), np.nan)
    units: Floats = centred / norm[:, None, :]
    return units


def percentile_interval(draws: Floats, level: float = 0.95) -> tuple[Floats, Floats]:
    """Percentile interval over the first axis of (draws, ...); undefined draws are left out.

    NaN where no draw is defined. Source: Efron and Tibshirani 1993, chapter 13.
    """
    tail = (1 - level) / 2
    undefined = np.isnan(draws)
    if not undefined.any():
        low, high = np.quantile(draws, [tail, 1 - tail], axis=0)
        return low, high
    nowhere = undefined.all(axis=0)
    filled = np.where(nowhere, 0.0, draws)
    low, high = np.nanquantile(filled, [tail, 1 - tail], axis=0)
    return np.where(nowhere, np.nan, low), np.where(nowhere, np.nan, high)


def permutation_p(values: Floats, draws: int, rng: np.random.Generator) -> Floats:
    """Two-sided p of Spearman's rho between all columns of (n_models, n_platforms).

    The models of one side are permuted against the other: all orders for up to 8 models, else
    `draws` random ones with p = (b + 1) / (draws + 1). NaN where a column is constant.
    Source: Phipson and Smyth 2010 for the added one.
    """
    n_models, n_platforms = values.shape
    ranks = average_ranks(values)
    units = unit_columns(ranks)
    observed = products(units)
    # Equal rhos differ by rounding; two different rhos of n models differ by far more.
    least = np.abs(observed) - 1e-9
    is_exact = n_models <= MAX_MODELS_FOR_EXACT
    orders = _all_orders(n_models) if is_exact else _some_orders(n_models, draws, rng)
    hits = np.zeros_like(observed)
    step = block_size(max(n_models, n_platforms), n_platforms)
    for start in range(0, len(orders), step):
        # One product of two large matrices is faster than many small ones in BLAS.
        permuted = np.moveaxis(units[orders[start : start + step]], 0, 1).reshape(n_models, -1)
        rhos = (units.T @ permuted).reshape(n_platforms, -1, n_platforms)
        hits += (np.abs(rhos) >= least[:, None, :]).sum(axis=1)
    p = hits / len(orders) if is_exact else (hits + 1) / (draws + 1)
    # Permuting either side is the same test; drawn permutations make them differ by chance.
    p = np.maximum(p, p.T)
    return np.where(np.isnan(observed), np.nan, p)


@functools.lru_cache(maxsize=MAX_MODELS_FOR_EXACT)
def _all_orders(n_models: int) -> npt.NDArray[np.int64]:
    return np.array(list(itertools.permutations(range(n_models))))


def _some_orders(n_models: int, draws: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    return rng.permuted(np.tile(np.arange(n_models), (draws, 1)), axis=1)


def adjust_p(p_values: Sequence[float | None]) -> list[float | None]:
    """Benjamini-Hochberg over all known p-values; an unknown p stays `None`."""
    known = [p for p in p_values if p is not None]
    if not known:
        return [None] * len(p_values)
    adjusted = iter(stats.false_discovery_control(known, method="bh").tolist())
    return [None if p is None else next(adjusted) for p in p_values]
