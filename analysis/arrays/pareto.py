"""Pareto frontiers on arrays: smaller is better, exact duplicates are both kept."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.ranking import Floats, require_finite


def hypervolume(points: Floats, reference: Floats) -> float:
    """Volume that (n_points, n_objectives) dominate up to the reference point (n_objectives,).

    Points that do not beat the reference in every objective add nothing.

    Source: Zitzler and Thiele 1999; computed by slicing along the last objective, which takes
    n^(d - 2) steps of n log n.
    """
    require_finite(points)
    inside = points[(points < reference).all(axis=1)]
    return _volume(inside[frontier(inside)], reference) if inside.size else 0.0


def additive_epsilon(chosen: Floats, wanted: Floats) -> float:
    """The least amount by which `chosen` must improve in all objectives to reach `wanted`.

    From (n_chosen, n_objectives) and (n_wanted, n_objectives): each wanted point is then weakly
    dominated by a chosen one. 0 or less when it already is; of logarithms, the logarithm of the
    least factor. Source: Zitzler et al. 2003, the epsilon indicator.

    Raises:
        ValueError: one of them is empty; a frontier of at least one point never is.
    """
    require_finite(chosen)
    require_finite(wanted)
    if not chosen.size or not wanted.size:
        raise ValueError("no points to compare: leave such a pair out")
    short = (chosen[:, None, :] - wanted[None, :, :]).max(axis=2)
    return float(short.min(axis=0).max())


def _volume(points: Floats, reference: Floats) -> float:
    if points.shape[1] == 1:
        return float(reference[0] - points.min())
    in_order = points[np.argsort(points[:, -1], kind="stable")]
    if points.shape[1] == 2:
        widths = reference[0] - np.minimum.accumulate(in_order[:, 0])
        return float(widths @ np.diff(in_order[:, 1], append=reference[1]))
    depths = np.diff(in_order[:, -1], append=reference[-1])
    return sum(
        float(depth) * _volume(points[frontier(points)], reference[:-1])
        for upto, depth in enumerate(depths)
        if depth > 0
        for points in (in_order[: upto + 1, :-1],)
    )


Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]

_SAMPLE = 300
"""Points that are searched for the one that removes most other points before the sort."""


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

    One dominates another when it is not worse in any objective and better in at least one.
    """
    require_finite(points)
    if points.shape[0] == 0:
        return np.zeros(0, dtype=np.bool_)
    return _of_pairs(points) if points.shape[1] == 2 else _of_any(points)


def noisy_frontier(low: Floats, high: Floats) -> Mask:
    """Which rows no other row dominates beyond the noise of both, (n_points,).

    `low` and `high` (n_points, n_objectives) bound each value; where it is exact they are equal.
    One dominates another when its upper bounds are nowhere above the other's lower bounds, and
    below one of them. With exact values this is `frontier`; noise only adds points to it.
    """
    require_finite(low)
    require_finite(high)
    # It is enough to compare with the frontier of upper bounds: it covers all dominating rows.
    rivals = np.unique(high[frontier(high)], axis=0)
    kept = np.ones(low.shape[0], dtype=np.bool_)
    for rival in rivals:
        kept &= ~((rival <= low).all(axis=1) & (rival < low).any(axis=1))
    return kept


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


def overlaps(masks: Mask, source: Positions, target: Positions) -> dict[str, Floats]:
    """Compares frontiers pair by pair: columns of (n_points, n_frontiers), all non-empty.

    The figures of `FrontierOverlap` and the frontiers' sizes, (n_pairs,) each.
    """
    sizes = masks.sum(axis=0)
    # Counts stay exact in float32 up to 2^24 points.
    ones = masks.astype(np.float32)
    both = (ones.T @ ones)[source, target].astype(np.float64)
    n_source, n_target = sizes[source].astype(np.float64), sizes[target].astype(np.float64)
    return {
        "n_source": n_source, "n_target": n_target,
        "precision": both / n_source, "recall": both / n_target,
        "f1": 2 * both / (n_source + n_target), "jaccard": both / (n_source + n_target - both),
        "chance_precision": n_target / masks.shape[0],
    }  # fmt: skip


def _of_pairs(points: Floats) -> Mask:
    x, y = np.ascontiguousarray(points.T)
    rows = np.flatnonzero(_not_beaten_by_one(x, y))
    order = rows[np.argsort(x[rows])]
    x, y = x[order], y[order]
    starts = np.flatnonzero(np.append(True, x[1:] != x[:-1]))
    # Of points with equal x only the best y matters: it must be better than all before.
    best = np.minimum.reduceat(y, starts)
    best_before = np.append(np.inf, np.minimum.accumulate(best)[:-1])
    bar = np.where(best < best_before, best, -np.inf)
    mask = np.zeros(points.shape[0], dtype=np.bool_)
    mask[order] = y == np.repeat(bar, np.diff(starts, append=y.size))
    return mask


def _not_beaten_by_one(x: Floats, y: Floats) -> Mask:
    """Removes points that are worse in both objectives than one good point, before the sort."""
    step = max(1, x.size // _SAMPLE)
    some_x, some_y = x[::step], y[::step]
    beaten = (some_x[:, None] < some_x) & (some_y[:, None] < some_y)
    one = int(beaten.sum(axis=1).argmax())
    spared: Mask = (x <= some_x[one]) | (y <= some_y[one])
    return spared


def _of_any(points: Floats) -> Mask:
    """In lexical order a point can only be dominated by one that comes before it."""
    order = np.lexsort(points.T[::-1])
    in_order = points[order]
    is_first = np.append(True, (in_order[1:] != in_order[:-1]).any(axis=1))
    distinct = in_order[is_first]
    kept: list[int] = []
    for index, point in enumerate(distinct):
        if not (distinct[kept] <= point).all(axis=1).any():
            kept.append(index)
    is_kept = np.zeros(distinct.shape[0], dtype=np.bool_)
    is_kept[kept] = True
    mask = np.empty(points.shape[0], dtype=np.bool_)
    mask[order] = is_kept[np.cumsum(is_first) - 1]
    return mask
