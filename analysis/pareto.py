"""Pareto frontiers on arrays: smaller is better, exact duplicates are both kept."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis.ranking import Floats, require_finite

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierOverlap:
    """How well one frontier predicts another over the same points.

    Attributes:
        chance_precision: what choosing points at random gives: size of the target's frontier / n.
    """

    precision: float
    recall: float
    f1: float
    jaccard: float
    chance_precision: float


def frontier(points: Floats) -> Mask:
    """Which rows of (n_points, n_objectives) no other row dominates, (n_points,).

    One dominates another when it is no worse in all and better in at least one objective.
    """
    require_finite(points)
    if points.shape[0] == 0:
        return np.zeros(0, dtype=np.bool_)
    order = np.lexsort(points.T[::-1])
    in_order = points[order]
    is_first = np.append(True, (in_order[1:] != in_order[:-1]).any(axis=1))
    distinct = in_order[is_first]
    kept = _sorted_pair(distinct) if points.shape[1] == 2 else _sorted_any(distinct)
    mask = np.empty(points.shape[0], dtype=np.bool_)
    mask[order] = kept[np.cumsum(is_first) - 1]
    return mask


def overlap(source: Mask, target: Mask) -> FrontierOverlap | None:
    """Compares two frontiers (n_points,); `None` when there are no points.

    A frontier of at least one point is never empty, so nothing is divided by 0.
    """
    n = source.shape[0]
    if n == 0:
        return None
    both = int((source & target).sum())
    n_source, n_target = int(source.sum()), int(target.sum())
    return FrontierOverlap(
        precision=both / n_source,
        recall=both / n_target,
        f1=2 * both / (n_source + n_target),
        jaccard=both / (n_source + n_target - both),
        chance_precision=n_target / n,
    )


def _sorted_pair(points: Floats) -> Mask:
    """Of distinct points in lexical order, one survives when it beats all before it."""
    best_before = np.minimum.accumulate(points[:, 1])[:-1]
    return np.append(True, points[1:, 1] < best_before)


def _sorted_any(points: Floats) -> Mask:
    """In lexical order a point can only be dominated by one that comes before it."""
    kept: list[int] = []
    for index, point in enumerate(points):
        if not (points[kept] <= point).all(axis=1).any():
            kept.append(index)
    mask = np.zeros(points.shape[0], dtype=np.bool_)
    mask[kept] = True
    return mask
