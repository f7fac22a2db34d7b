"""The objectives of a Pareto frontier, chosen by name: high accuracy, low costs."""

import difflib
from enum import StrEnum

import numpy as np

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.panel import Panel, Repeats
from fleetrank.analysis.stored.cells_table import MIN_REPEATS, interval_depth


class Objective(StrEnum):
    """Accuracy is better when larger, all others when smaller."""

    ACCURACY = "accuracy"
    LATENCY = "latency"
    MEMORY = "memory"
    ENERGY = "energy"
    FLOPS = "flops"


DEFAULT_OBJECTIVES = "accuracy,latency"
_PROCESSES = (Objective.LATENCY, Objective.MEMORY)
"""In the order of `Repeats.processes`."""
_EXACT = (Objective.ACCURACY, Objective.FLOPS)
"""These have no noise on a platform: they are properties of the model."""


def parse_objectives(text: str) -> tuple[Objective, ...]:
    """Two or more names, separated by commas.

    Raises:
        AnalysisError: a name is unknown or given twice, or there is only one.
    """
    names = [name.strip() for name in text.split(",")]
    known = ", ".join(Objective)
    for name in names:
        if name not in list(Objective):
            near = difflib.get_close_matches(name, list(Objective), n=1)
            hint = f"did you mean '{near[0]}'? " if near else ""
            raise AnalysisError(f"no objective '{name}'", f"{hint}there are {known}")
    if len(names) < 2 or len(set(names)) < len(names):
        raise AnalysisError(
            f"'{text}' are not two or more different objectives", f"choose from {known}"
        )
    return tuple(Objective(name) for name in names)


def points(panel: Panel, objectives: tuple[Objective, ...]) -> Floats:
    """Values where smaller is better, (n_models, n_platforms, n_objectives); NaN is missing.

    Accuracy is negated. A cost of 0 or less is not a measurement and missing.
    """
    return np.stack([_values(panel, one) for one in objectives], axis=2)


def noise_bounds(
    panel: Panel, repeats: Repeats, objectives: tuple[Objective, ...]
) -> tuple[Floats, Floats]:
    """Lower and upper bounds of `points` within their measured noise; NaN where it is not known.

    Latency and memory have their intervals over processes, which need 5 repeats; accuracy and
    FLOPs are exact. The noise of energy is never known.
    """
    low, high = points(panel, objectives), points(panel, objectives)
    for at, objective in enumerate(objectives):
        if objective in _PROCESSES:
            values = repeats.processes[_PROCESSES.index(objective)]
            low[:, :, at], high[:, :, at] = process_interval(values)
        elif objective is Objective.ENERGY:
            low[:, :, at] = high[:, :, at] = np.nan
    return low, high


def process_interval(values: Floats) -> tuple[Floats, Floats]:
    """Interval of the median over processes (..., n_repeats), NaN missing, as tables show it.

    NaN below 5 of them.
    """
    in_order = np.sort(values, axis=-1)
    count = np.isfinite(values).sum(axis=-1)
    depth = np.array([interval_depth(n) for n in range(values.shape[-1] + 1)])[count]
    ends = [
        np.take_along_axis(in_order, np.maximum(at, 0)[..., None], axis=-1)[..., 0]
        for at in (depth, count - 1 - depth)
    ]
    low, high = np.where(count >= MIN_REPEATS, ends, np.nan)
    return low, high


def by_flops(objectives: tuple[Objective, ...]) -> tuple[Objective, ...]:
    """The objectives that need no device: FLOPs replace all measured ones."""
    return tuple(dict.fromkeys(one if one in _EXACT else Objective.FLOPS for one in objectives))


def _values(panel: Panel, objective: Objective) -> Floats:
    shape = panel.latency.shape
    if objective is Objective.ACCURACY:
        return np.broadcast_to(-panel.accuracy[:, None], shape)
    costs = {
        Objective.LATENCY: panel.latency,
        Objective.MEMORY: panel.memory,
        Objective.ENERGY: panel.energy,
        Objective.FLOPS: np.broadcast_to(panel.flops[:, None], shape),
    }[objective]
    return np.where(costs > 0, costs, np.nan)
