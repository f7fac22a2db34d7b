"""Intervals from weighted endpoints: the end of a jackknife+ with groups; arrays only.

Source: Barber, Candes, Ramdas and Tibshirani 2021, equation 1, with a weight for each score.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleetrank.analysis.arrays.ranking import Floats

ROUNDING = 1e-9
"""Sums of weights are exact to about 1e-12."""
_MAX_ENDPOINTS = 2_000_000
"""Endpoints sorted at once: 16 MB, and as much for their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The endpoints that one device gives, at centre +- score x width.

    Attributes:
        centres, widths: (n_models, n), or (n_models, 1) if the scores share them.
        scores: (n,).
        weight: of one score.
    """

    centres: Floats
    widths: Floats
    scores: Floats
    weight: float


def weight_at_infinity(n_groups: int, k: int) -> float:
    """The weight of the value to predict; an interval is finite if 1 - coverage is not below it."""
    return 1 / (n_groups * (k + 1))


def interval_of(groups: Sequence[Group], alpha: float, at_infinity: float) -> tuple[Floats, Floats]:
    """The weighted `alpha` quantile of the low ends and 1 - `alpha` of the high ends."""
    weights = np.concatenate([np.full(one.scores.size, one.weight) for one in groups])
    n_models = groups[0].centres.shape[0]
    low, high = np.full(n_models, -np.inf), np.full(n_models, np.inf)
    if at_infinity > alpha + ROUNDING:
        return low, high
    rows = max(_MAX_ENDPOINTS // weights.size, 1)
    for first in range(0, n_models, rows):
        part = slice(first, first + rows)
        for sign, ends in ((-1, low), (1, high)):
            sides = np.concatenate(
                [sign * one.centres[part] + one.scores * one.widths[part] for one in groups],
                axis=1,
            )
            ends[part] = sign * _upper(sides, weights, 1 - alpha)
    return low, high


def _upper(sides: Floats, weights: Floats, share: float) -> Floats:
    """The smallest value of each row (n_models, n) with weight `share` at or below it.

    The weights sum to less than 1: the rest lies at infinity.
    """
    order = np.argsort(sides, axis=1)
    reached = np.cumsum(weights[order], axis=1) >= share - ROUNDING
    first = np.argmax(reached, axis=1)
    found = np.take_along_axis(sides, np.take_along_axis(order, first[:, None], 1), 1)[:, 0]
    upper: Floats = np.where(reached.any(axis=1), found, np.inf)
    return upper
