"""How far a measured ranking departs from the one by FLOPs, on arrays."""

from dataclasses import dataclass

import numpy as np

from fleetrank.analysis.arrays.ranking import Floats, average_ranks

MIN_SHIFT = 2.0
"""Positions apart that count as a disagreement. Source: the study's Table 1."""
CHANCE_DRAWS = 1000
"""Random rankings behind what chance gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """What a ranking without any relation to FLOPs gives on one platform.

    Attributes:
        share: expected share of models that shift by `MIN_SHIFT` or more.
        any_share: probability that at least one does.
    """

    share: float
    any_share: float


def rank_shifts(flops: Floats, metric: Floats) -> Floats:
    """Rank by the metric minus rank by FLOPs, both (n_models,); above 0 is worse than FLOPs say."""
    return average_ranks(metric[:, None])[:, 0] - average_ranks(flops[:, None])[:, 0]


def chance_of_shift(flops: Floats, metric: Floats, rng: np.random.Generator) -> Chance:
    """Shifts of the metric's own ranks in random order; ties count as they are."""
    by_flops = average_ranks(flops[:, None])[:, 0]
    by_metric = average_ranks(metric[:, None])[:, 0]
    drawn = rng.permuted(np.broadcast_to(by_metric, (CHANCE_DRAWS, by_metric.size)), axis=1)
    is_case = np.abs(drawn - by_flops) >= MIN_SHIFT
    return Chance(share=float(is_case.mean()), any_share=float(is_case.any(axis=1).mean()))
