"""How repeatable a platform's ranking is, on arrays."""

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.bootstrap import (
    MIN_MODELS_FOR_INTERVAL,
    percentile_interval,
    resample_counts,
    resampled_units,
)
from fleetrank.analysis.arrays.pareto import Mask
from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats, rank_units, spearman_matrix

Numbers = npt.NDArray[np.int64]

MIN_REPEATS_TO_SPLIT = 2
"""Splitting into halves needs at least two processes."""
_RESAMPLES = 400
_SPLITS_IN_INTERVAL = 5
"""Resampling models moves a reliability far more than the choice of splits does."""


def split_halves(parts: Floats, draws: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Random halves of every model's repeats, as two shorter series.

    From (n_parts, n_models, n_repeats) to (2, n_models, draws), the logarithm of the product over
    parts of the median over a half's repeats, and to (n_models,), how many times longer the whole
    series is than a half (2 for an even number of repeats; of an odd number one is left out at
    random). A repeat without one of the parts is left out; NaN where fewer than 2 are left.
    """
    complete: Mask = np.all(np.isfinite(parts), axis=0)
    counts = complete.sum(axis=1)
    halves = np.full((2, parts.shape[1], draws), np.nan)
    for count in np.unique(counts[counts >= MIN_REPEATS_TO_SPLIT]).tolist():
        rows = np.flatnonzero(counts == count)
        known: Mask = complete[rows]
        kept = parts[:, rows][:, known].reshape(parts.shape[0], rows.size, count)
        order = rng.permuted(np.tile(np.arange(count), (draws, rows.size, 1)), axis=2)
        half = count // 2
        for side in (0, 1):
            picked = order[:, :, side * half : (side + 1) * half]
            halves[side, rows] = _log_products(kept, picked).T
    lengthening = np.full(counts.shape, np.nan)
    enough = counts >= MIN_REPEATS_TO_SPLIT
    lengthening[enough] = counts[enough] / (counts[enough] // 2)
    return halves, lengthening


def _log_products(kept: Floats, picked: Numbers) -> Floats:
    """Logarithm of the product over parts of the median of the picked repeats, (draws, n_models).

    From (n_parts, n_models, n_repeats) and positions (draws, n_models, n_picked).
    """
    (draws, n_models, n_picked), count = picked.shape, kept.shape[2]
    sizes = (count,) * n_picked
    if count**n_picked > draws:
        return _of_each(kept, picked)
    # Fewer choices than draws: each choice is computed once, and the draws look it up.
    choices = np.indices(sizes).reshape(n_picked, -1, 1).T.swapaxes(0, 1)
    every = np.broadcast_to(choices, (count**n_picked, n_models, n_picked))
    number = np.ravel_multi_index(tuple(np.moveaxis(picked, 2, 0)), sizes)
    found: Floats = np.take_along_axis(_of_each(kept, every), number, axis=0)
    return found


def _of_each(kept: Floats, picked: Numbers) -> Floats:
    """`_log_products`, choice after choice."""
    in_order = np.take_along_axis(kept[:, None], picked[None], axis=3)
    # Sorting a few values is several times faster than NumPy's median; of two, any order.
    n_picked = picked.shape[2]
    if n_picked > 2:
        in_order = np.sort(in_order, axis=3)
    medians = (in_order[..., (n_picked - 1) // 2] + in_order[..., n_picked // 2]) / 2
    products: Floats = np.log(medians).sum(axis=0)
    return products


def spearman_brown(rho: Floats, lengthening: float) -> Floats:
    """Reliability of a series `lengthening` times as long as those that agree with `rho`.

    A rho below 0 counts as 0. Source: Spearman 1910, Brown 1910; exact for means of repeats of
    equal noise, close for medians.
    """
    positive = np.maximum(rho, 0.0)
    stepped: Floats = lengthening * positive / (1 + (lengthening - 1) * positive)
    return stepped


def split_reliability(halves: Floats, lengthening: Floats) -> float:
    """Spearman-Brown of the mean rho over all splits of `split_halves`.

    NaN with fewer than 5 models that have halves, where all models are equal, or where halves do
    not agree at all (a mean rho of 0 or less).
    """
    has_halves = np.isfinite(lengthening)
    if has_halves.sum() < MIN_MODELS:
        return float("nan")
    first, second = (rank_units(half[has_halves]) for half in halves)
    rho = (first * second).sum(axis=0)
    defined = rho[np.isfinite(rho)]
    if defined.size == 0 or defined.mean() <= 0:
        return float("nan")
    stepped = spearman_brown(defined.mean(), float(lengthening[has_halves].mean()))
    return float(np.minimum(stepped, 1.0))


def reliability_interval(
    halves: Floats, lengthening: Floats, rng: np.random.Generator
) -> tuple[float, float] | None:
    """95 % percentile bootstrap over models of `split_reliability`; `None` below 9 of them."""
    has_halves = np.isfinite(lengthening)
    n_models = int(has_halves.sum())
    if n_models < MIN_MODELS_FOR_INTERVAL:
        return None
    some = halves[:, has_halves, :_SPLITS_IN_INTERVAL]
    n_splits = some.shape[2]
    counts = resample_counts(n_models, _RESAMPLES, rng)
    rhos = [
        (units[..., :n_splits] * units[..., n_splits:]).sum(axis=1)
        for units in resampled_units(np.concatenate([some[0], some[1]], axis=1), counts)
    ]
    means = np.concatenate(rhos).mean(axis=1)
    stepped = spearman_brown(means, float(lengthening[has_halves].mean()))
    low, high = np.clip(percentile_interval(stepped), 0.0, 1.0)
    return float(low), float(high)


def retest_reliability(sweeps: Floats) -> tuple[float, int]:
    """Mean rho over all pairs of sweeps of one platform, (n_models, n_sweeps), NaN missing.

    Over the models that both have, at least 5; NaN where no pair of sweeps has a rho. Versions
    and days that differ between sweeps count as noise here. Also the number of models in at least
    one of the pairs that have a rho.
    """
    rhos = []
    compared = np.zeros(sweeps.shape[0], dtype=np.bool_)
    for i in range(sweeps.shape[1]):
        for j in range(i + 1, sweeps.shape[1]):
            both = np.isfinite(sweeps[:, i]) & np.isfinite(sweeps[:, j])
            if both.sum() < MIN_MODELS:
                continue
            rho = spearman_matrix(sweeps[both][:, [i, j]])[0, 1]
            if np.isfinite(rho):
                rhos.append(rho)
                compared |= both
    return float(np.mean(rhos)) if rhos else float("nan"), int(compared.sum())
