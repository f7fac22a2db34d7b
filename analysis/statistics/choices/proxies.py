"""Which device represents others, on arrays of rank agreement (n_devices, n_devices).

NaN is an unknown agreement; it counts as no prediction and is left out of medians.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.known_means import known_median
from fleetrank.analysis.arrays.ranking import Floats

MAX_EXACT = 20
"""A search of 2^20 subsets takes seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """One device left out: the device chosen without it, and how well that one predicts it."""

    left_out: int
    chosen: int
    rho: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cover:
    """Members that predict all targets; their number is at most `bound` times the minimum."""

    members: tuple[int, ...]
    is_exact: bool
    bound: float


def typical_rho(rho: Floats) -> Floats:
    """Median agreement of each source (second-last axis) over the targets (last axis).

    NaN where no target is known.
    """
    return known_median(rho, -1)


def best_source(rho: Floats) -> int | None:
    """The source with the highest median agreement (the first if tied), or `None`."""
    typical = typical_rho(rho)
    return None if np.isnan(typical).all() else int(np.nanargmax(typical))


def leave_one_out(rho: Floats, sources: npt.NDArray[np.int64]) -> list[Fold]:
    """Chooses the best of `sources` without each device, and tests the choice on that device.

    `rho` is square with NaN on the diagonal. A device that is left out is neither a source nor a
    target of the choice; a fold without any source is left out.
    """
    folds = []
    for left_out in range(rho.shape[0]):
        rows = sources[sources != left_out]
        chosen = best_source(np.delete(rho[rows], left_out, axis=1)) if rows.size else None
        if chosen is not None:
            value = float(rho[rows[chosen], left_out])
            known = None if math.isnan(value) else value
            folds.append(Fold(left_out=left_out, chosen=int(rows[chosen]), rho=known))
    return folds


def smallest_cover(rho: Floats, threshold: float) -> Cover | None:
    """Fewest rows of (n_sources, n_targets) such that some row reaches the threshold per target.

    A device predicts itself when its entry is 1. Exact by search for up to 20 sources, and then
    of equally small sets the one with the highest mean of best agreements; greedy beyond.
    `None` when even all rows leave a target out.
    Source: Johnson 1974 for the greedy bound H(n) <= ln(n) + 1.
    """
    reaches = is_reached(rho, threshold)
    if not reaches.any(axis=0).all():
        return None
    if rho.shape[0] <= MAX_EXACT:
        return Cover(members=_search(rho, reaches), is_exact=True, bound=1.0)
    bound = math.log(rho.shape[1]) + 1
    return Cover(members=_greedy(reaches), is_exact=False, bound=bound)


def is_reached(rho: Floats, threshold: float) -> npt.NDArray[np.bool_]:
    """Whether each agreement is at least the threshold; equal ones may differ by rounding."""
    reached: npt.NDArray[np.bool_] = np.nan_to_num(rho, nan=-2.0) >= threshold - 1e-9
    return reached


def _search(rho: Floats, reaches: npt.NDArray[np.bool_]) -> tuple[int, ...]:
    n_sources, n_targets = reaches.shape
    masks = [int("".join("1" if hit else "0" for hit in row), 2) for row in reaches]
    full = (1 << n_targets) - 1
    agreement = np.nan_to_num(rho, nan=-2.0)
    for size in range(1, n_sources + 1):
        found = [
            members
            for members in itertools.combinations(range(n_sources), size)
            if _joined(masks, members) == full
        ]
        if found:
            return max(found, key=lambda members: agreement[list(members)].max(axis=0).mean())
    raise ValueError("all rows together do not reach every column")


def _joined(masks: list[int], members: tuple[int, ...]) -> int:
    joined = 0
    for member in members:
        joined |= masks[member]
    return joined


def _greedy(reaches: npt.NDArray[np.bool_]) -> tuple[int, ...]:
    """Takes the row that reaches the most remaining targets, the first if tied."""
    left = np.ones(reaches.shape[1], dtype=np.bool_)
    members = []
    while left.any():
        best = int((reaches & left).sum(axis=1).argmax())
        members.append(best)
        left &= ~reaches[best]
    return tuple(members)
