"""How good a set of points is in place of a frontier, on arrays: smaller is better."""

import numpy as np

from fleetrank.analysis.arrays.pareto import frontier
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
        float(depth) * _volume(_best(in_order[: upto + 1, :-1]), reference[:-1])
        for upto, depth in enumerate(depths)
        if depth > 0
    )


def _best(points: Floats) -> Floats:
    best: Floats = points[frontier(points)]
    return best
