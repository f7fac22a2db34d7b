"""Uncertainty of rank correlations: resampling of models and permutation, for many pairs."""

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats, average_ranks
from fleetrank.analysis.arrays.strata import stratified_units

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
