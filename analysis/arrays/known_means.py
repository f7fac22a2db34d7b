"""Means and medians of the known values of arrays with NaN, also inside clusters of columns."""

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.ranking import Floats


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
