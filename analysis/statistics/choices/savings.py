"""What is lost when only some devices are measured, on arrays."""

from dataclasses import dataclass

import numpy as np

from fleetrank.analysis.arrays.pareto import frontier, overlap
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.statistics.choices.next_models import rank_agreement

DRAWS = 50
"""Random sets of sources per target and size; their mean is then sure to about 1 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """Errors of predicting one device from others, one entry per set of sources.

    Attributes:
        rho: of predicted with true latencies; NaN where one is constant.
        precision, recall: of the predicted accuracy-latency frontier; `None` without accuracy.
    """

    rho: Floats
    precision: Floats | None
    recall: Floats | None


def predicted_by_sources(logs: Floats, target: int, size: int, rng: np.random.Generator) -> Floats:
    """The mean of `size` other devices in random draws, (draws, n_models).

    From centred log latencies (n_models, n_devices); one draw when all others are taken.
    """
    others = np.delete(np.arange(logs.shape[1]), target)
    if size == others.size:
        consensus: Floats = logs[:, others].mean(axis=1)
        return consensus[None]
    orders = rng.permuted(np.tile(others, (DRAWS, 1)), axis=1)[:, :size]
    means: Floats = logs[:, orders].mean(axis=2).T
    return means


def accepted_error(predicted: Floats, truth: Floats, accuracy: Floats) -> Accepted:
    """Judges (draws, n_models) by (n_models,); frontiers are of the models with an accuracy."""
    rho = rank_agreement(predicted, truth)
    known = np.isfinite(accuracy)
    if not known.any():
        return Accepted(rho=rho, precision=None, recall=None)
    real = frontier(np.column_stack([truth, -accuracy])[known])
    found = [overlap(frontier(np.column_stack([one, -accuracy])[known]), real) for one in predicted]
    figures = np.array([(one.precision, one.recall) for one in found if one is not None])
    return Accepted(rho=rho, precision=figures[:, 0], recall=figures[:, 1])
