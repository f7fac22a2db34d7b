"""How well a platform's accuracy-latency frontier predicts itself under measured noise."""

import numpy as np

from fleetrank.analysis.arrays.pareto import Mask
from fleetrank.analysis.arrays.ranking import Floats, require_finite


def frontiers(latency: Floats, accuracy: Floats) -> Mask:
    """The frontier of every draw: (draws, n_models) and (n_models,) to (draws, n_models).

    Row by row what `pareto.frontier` gives; exact duplicates are both kept.
    """
    require_finite(latency)
    require_finite(accuracy)
    by_accuracy = np.argsort(-accuracy, kind="stable")
    # Stable: of models equally fast, the more accurate comes first.
    order = by_accuracy[np.argsort(latency[:, by_accuracy], axis=1, kind="stable")]
    times, hits = np.take_along_axis(latency, order, axis=1), accuracy[order]
    best = np.maximum.accumulate(hits, axis=1)
    is_better = np.ones(times.shape, dtype=np.bool_)
    is_better[:, 1:] = hits[:, 1:] > best[:, :-1]
    is_new = np.ones(times.shape, dtype=np.bool_)
    is_new[:, 1:] = (times[:, 1:] != times[:, :-1]) | (hits[:, 1:] != hits[:, :-1])
    first = np.maximum.accumulate(np.where(is_new, np.arange(times.shape[1]), 0), axis=1)
    masks = np.empty(times.shape, dtype=np.bool_)
    np.put_along_axis(masks, order, np.take_along_axis(is_better, first, axis=1), axis=1)
    return masks


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


def self_overlap(first: Mask, second: Mask) -> tuple[float, float]:
    """Mean precision and recall of frontier after frontier, (draws, n_models) each.

    A frontier of at least one model is never empty.
    """
    both = (first & second).sum(axis=1)
    return float((both / first.sum(axis=1)).mean()), float((both / second.sum(axis=1)).mean())
