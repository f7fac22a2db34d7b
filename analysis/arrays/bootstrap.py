"""Uncertainty of rank correlations: resampling of models and permutation, for many pairs."""

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.ranking import (
    MIN_MODELS,
    Floats,
    average_ranks,
    block_size,
    require_finite,
)

# Ranks of models in resamples, among all models or inside groups of them, on arrays.

NO_STRATUM = -1
"""The number of a model that belongs to no group."""
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """The models in the order of one column, stratum after stratum.

    Attributes:
        models: the model at each place, (n_models,).
        place: where each model's value is among the distinct ones, (n_models,).
        starts: where each distinct value begins; `None` where no two are equal.
    """

    models: Numbers
    place: Numbers
    starts: Numbers | None


def stratified_units(values: Floats, strata: Numbers, counts: Numbers) -> Iterator[Floats]:
    """Unit columns of the ranks inside each stratum, in resamples of the models.

    From (n_models, n_platforms), the stratum of each model (n_models,) and how often each model is
    drawn (draws, n_models) to blocks (some draws, n_models, n_platforms). The product of two
    columns is Spearman's rho inside the strata: ranks are taken inside a stratum, centred, and
    divided by its size + 1, so that a stratum counts by its number of models. A model alone in its
    stratum, or in `NO_STRATUM`, counts nothing; NaN where no stratum has an order.

    Source: Taylor 1987, Kendall's and Spearman's correlation coefficients in the presence of a
    blocking variable.
    """
    require_finite(values)
    # Sorting once per platform serves all draws: ranks follow from cumulative counts.
    orders = [_order(column, strata) for column in values.T]
    _, member = np.unique(strata, return_inverse=True)
    by_stratum = np.argsort(member, kind="stable")
    starts = np.flatnonzero(np.diff(member[by_stratum], prepend=-1))
    step = block_size(*values.shape)
    for start in range(0, counts.shape[0], step):
        weights = counts[start : start + step].astype(np.float64)
        sizes = np.add.reduceat(weights[:, by_stratum], starts, axis=1)
        # The mean rank of a stratum, counted from the first model of the first one.
        middle = (np.cumsum(sizes, axis=1) - (sizes - 1) / 2)[:, member]
        scale = np.sqrt(weights) / (sizes + 1)[:, member]
        yield _units(orders, weights, middle, np.where(strata == NO_STRATUM, 0.0, scale))


def _order(column: Floats, strata: Numbers) -> _Order:
    models = np.lexsort((column, strata))
    values, groups = column[models], strata[models]
    is_first = np.ones(models.size, dtype=np.bool_)
    is_first[1:] = (values[1:] != values[:-1]) | (groups[1:] != groups[:-1])
    place = np.empty(models.size, dtype=np.int64)
    place[models] = np.cumsum(is_first) - 1
    starts = None if is_first.all() else np.flatnonzero(is_first)
    return _Order(models=models, place=place, starts=starts)


def _rank(order: _Order, weights: Floats, out: Floats) -> None:
    """Writes average ranks through all strata, (draws, n_models), each counted `weights` times."""
    totals = weights.take(order.models, axis=1)
    if order.starts is not None:
        totals = np.add.reduceat(totals, order.starts, axis=1)
    ranks = np.cumsum(totals, axis=1)
    totals -= 1
    totals /= 2
    ranks -= totals
    # `take` checks places one by one, and copies the result, unless it may clip them.
    ranks.take(order.place, axis=1, out=out, mode="clip")


def _units(orders: list[_Order], weights: Floats, middle: Floats, scale: Floats) -> Floats:
    """Unit columns (draws, n_models, n_platforms) of (ranks - middle) x scale."""
    # A platform's draws, and in each draw its models, are side by side in memory.
    units = np.empty((len(orders), *weights.shape))
    for number, order in enumerate(orders):
        mine = units[number]
        _rank(order, weights, mine)
        mine -= middle
        mine *= scale
        # Ranks and their mean are exact, so that without an order this is exactly 0.
        squares = np.einsum("dn,dn->d", mine, mine)
        mine /= np.sqrt(np.where(squares > 0, squares, np.nan))[:, None]
    return np.moveaxis(units, 0, 2)


def terciles(values: Floats) -> Numbers:
    """Three groups of equal size by value, (n_models,); NaN is in `NO_STRATUM`."""
    strata = np.full(values.size, NO_STRATUM, dtype=np.int64)
    known = np.flatnonzero(np.isfinite(values))
    # Equal values are in one group: that of their lowest rank.
    below = (values[known][:, None] > values[known]).sum(axis=1)
    strata[known] = 3 * below // max(1, known.size)
    return strata


MIN_MODELS_FOR_INTERVAL = 9
"""Resamples of fewer models have so many repeats that the interval's coverage is unknown."""
MAX_MODELS_FOR_EXACT = 8
"""Up to 8! = 40,320 orders are enumerated; for more models permutations are drawn."""
_MOST_EXACT = 2**24
"""Whole numbers below are exact in float32, whose products take half the time."""


def least_in_mean(n_models: Iterable[int]) -> int:
    """Fewest common models of a pair that enters a mean over pairs with `n_models` each.

    As many as an interval needs if any pair has them, else as many as a rho needs: one pair with
    few models must not take the interval from all.
    """
    most = max(n_models, default=0)
    return MIN_MODELS_FOR_INTERVAL if most >= MIN_MODELS_FOR_INTERVAL else MIN_MODELS


def resample_counts(n_models: int, draws: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """How often each model is drawn in each resample, (draws, n_models); rows sum to n_models."""
    return rng.multinomial(n_models, np.full(n_models, 1 / n_models), size=draws)


def resampled_units(values: Floats, counts: npt.NDArray[np.int64]) -> Iterator[Floats]:
    """Unit columns of the ranks of (n_models, n_platforms) in every resample of `counts`.

    Ranks are computed again inside each resample, where a model drawn twice ties with itself.
    Yields blocks (some draws, n_models, n_platforms) whose products are Spearman's rho, see
    `ranking.unit_columns`; NaN where a resample is constant.
    """
    every = np.zeros(values.shape[0], dtype=np.int64)
    yield from stratified_units(values, every, counts)


def resampled_medians(repeats: Floats, draws: int, rng: np.random.Generator) -> Floats:
    """Medians of resampled repeats, (n_models, n_repeats) with NaN missing to (draws, n_models).

    Each draw takes as many of a model's repeats as it has, with replacement.
    Source: Efron and Tibshirani 1993, chapter 6. NaN where a model has no repeat.
    """
    counts = np.isfinite(repeats).sum(axis=1)
    medians = np.full((draws, repeats.shape[0]), np.nan)
    for count in np.unique(counts[counts > 0]).tolist():
        rows = np.flatnonzero(counts == count)
        known = np.isfinite(repeats[rows])
        kept = repeats[rows][known].reshape(1, rows.size, count)
        picked = rng.integers(count, size=(draws, rows.size, count))
        medians[:, rows] = np.median(np.take_along_axis(kept, picked, axis=2), axis=2)
    return medians


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
    n_models = values.shape[0]
    # Twice the ranks, less their mean: sums of whole numbers are exact, so equal rhos are equal.
    ranks = 2 * average_ranks(values).T - (n_models + 1)
    observed = ranks @ ranks.T
    number = np.float32 if observed.max(initial=0) < _MOST_EXACT else np.float64
    ranks, least = ranks.astype(number), np.abs(observed).astype(number)[..., None]
    hits = np.zeros(observed.shape)
    # Of a larger product BLAS makes threads, which spend ten times the processor's time waiting.
    for orders in _orders(n_models, draws, max(1, 2**18 // ranks.size), rng):
        for column, of_column in enumerate(ranks):
            sums = ranks @ of_column.take(orders, mode="clip").T
            hits[column] += np.count_nonzero(np.abs(sums) >= least[column], axis=1)
    is_exact = n_models <= MAX_MODELS_FOR_EXACT
    p = hits / math.factorial(n_models) if is_exact else (hits + 1) / (draws + 1)
    # Permuting either side is the same test; drawn permutations make them differ by chance.
    p = np.maximum(p, p.T)
    varies = np.diag(observed) > 0
    return np.where(np.outer(varies, varies), p, np.nan)


@functools.lru_cache(maxsize=MAX_MODELS_FOR_EXACT)
def _all_orders(n_models: int) -> npt.NDArray[np.int64]:
    return np.array(list(itertools.permutations(range(n_models))))


def _orders(
    n_models: int, draws: int, step: int, rng: np.random.Generator
) -> Iterator[npt.NDArray[np.int64]]:
    """All orders of few models, else random ones, at most `step` at a time, (step, n_models)."""
    if n_models <= MAX_MODELS_FOR_EXACT:
        every = _all_orders(n_models)
        yield from (every[start : start + step] for start in range(0, len(every), step))
        return
    for start in range(0, draws, step):
        some = np.tile(np.arange(n_models), (min(step, draws - start), 1))
        yield rng.permuted(some, axis=1, out=some)


def adjust_p(p_values: Sequence[float | None]) -> list[float | None]:
    """Benjamini-Hochberg over all known p-values; an unknown p stays `None`.

    Importing `scipy.stats` for it takes longer than the other work on a small workspace.
    """
    known = np.array([p for p in p_values if p is not None])
    order = np.argsort(known)
    scaled = known[order] * (known.size / np.arange(1, known.size + 1))
    adjusted = np.empty(known.size)
    adjusted[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    values = iter(adjusted.tolist())
    return [None if p is None else next(values) for p in p_values]


# Means and medians of the known values of arrays with NaN, also inside clusters of columns.


def known_mean(values: Floats, axis: int) -> Floats:
    """Mean of the known values along `axis`; NaN without any."""
    known = np.isfinite(values)
    return _quotient(np.where(known, values, 0.0).sum(axis=axis), known.sum(axis=axis))


def known_median(values: Floats, axis: int) -> Floats:
    """Median of the known values along `axis`; NaN without any."""
    count = np.isfinite(values).sum(axis=axis, keepdims=True)
    # NaN sorts last, so the known ones come first.
    in_order = np.sort(values, axis=axis)
    low = np.take_along_axis(in_order, np.maximum(count - 1, 0) // 2, axis=axis)
    high = np.take_along_axis(in_order, count // 2, axis=axis)
    middle: Floats = ((low + high) / 2).squeeze(axis)
    return middle


def medians_without(values: Floats) -> Floats:
    """Median of the known values of each row without each column, both (n_rows, n_columns).

    NaN without any. Each row is sorted once: without one value, those behind it move up by one.
    """
    order = np.argsort(values, axis=1)  # NaN last
    place = np.argsort(order, axis=1)
    in_order = np.take_along_axis(values, order, axis=1)
    known = np.isfinite(values)
    left = known.sum(axis=1, keepdims=True) - known
    middle = np.zeros_like(values)
    for at in (np.maximum(left - 1, 0) // 2, left // 2):
        moved = np.minimum(at + (at >= place), values.shape[1] - 1)
        middle += np.take_along_axis(in_order, moved, axis=1) / 2
    return np.where(left > 0, middle, np.nan)


def cluster_means(values: Floats, starts: npt.NDArray[np.int64]) -> Floats:
    """Means of the known values inside each cluster: from (..., n_pairs) to (..., n_clusters).

    `starts` has the first column of each cluster. NaN for a cluster without known values.
    """
    known = np.isfinite(values)
    sums = np.add.reduceat(np.where(known, values, 0.0), starts, axis=-1)
    return _quotient(sums, np.add.reduceat(known, starts, axis=-1, dtype=np.int64))


def cluster_weights(values: Floats, clusters: npt.ArrayLike) -> tuple[Floats, float | None, int]:
    """Weights of a mean that is taken inside each cluster first, then over clusters.

    From values (n_pairs,), NaN unknown, and the name or number of each one's cluster to weights
    (n_pairs,), 0 where unknown; the standard deviation over clusters, `None` for one; and their
    number.
    """
    known = np.isfinite(values)
    names, member = np.unique(np.asarray(clusters)[known], return_inverse=True)
    sizes = np.bincount(member)
    weights = np.zeros(values.size)
    weights[known] = 1 / (sizes[member] * names.size)
    means = np.bincount(member, weights=values[known]) / sizes
    spread = float(np.std(means, ddof=1)) if names.size > 1 else None
    return weights, spread, names.size


def _quotient(sums: Floats, counts: npt.NDArray[np.int64]) -> Floats:
    means: Floats = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return means


def known(value: float | Floats) -> float | None:
    """A single value; `None` for NaN."""
    return None if np.isnan(value) else float(value)
