"""What a Pareto frontier weighs, chosen by name: accuracy up, costs down."""

import difflib
from enum import StrEnum

import numpy as np

from analysis.errors import AnalysisError
from analysis.panel import Panel
from analysis.ranking import Floats


class Objective(StrEnum):
    """Accuracy is better when larger, all others when smaller."""

    ACCURACY = "accuracy"
    LATENCY = "latency"
    MEMORY = "memory"
    ENERGY = "energy"
    FLOPS = "flops"


DEFAULT_OBJECTIVES = "accuracy,latency"
_EXACT = (Objective.ACCURACY, Objective.FLOPS)
"""They carry no noise of the platform: they are the model's own."""


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

    Accuracy is negated. A cost of 0 or less is no measurement and missing.
    """
    return np.stack([_values(panel, one) for one in objectives], axis=2)


def noise_bounds(panel: Panel, objectives: tuple[Objective, ...]) -> tuple[Floats, Floats] | None:
    """Lower and upper bounds of `points` within their measured noise; NaN where it is not known.

    Latency lies in its interval over processes, which needs 5 repeats; accuracy and FLOPs are
    exact. `None` when an objective's noise is never measured: memory and energy.
    """
    if not {*objectives} <= {*_EXACT, Objective.LATENCY}:
        return None
    low, high = points(panel, objectives), points(panel, objectives)
    if Objective.LATENCY in objectives:
        at = objectives.index(Objective.LATENCY)
        low[:, :, at], high[:, :, at] = panel.latency_low, panel.latency_high
    return low, high


def by_flops(objectives: tuple[Objective, ...]) -> tuple[Objective, ...]:
    """The objectives that need no device: whatever is measured is replaced by FLOPs."""
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
