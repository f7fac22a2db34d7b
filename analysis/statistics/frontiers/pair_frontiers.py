"""Frontiers of platforms in chosen objectives, compared pair by pair on the models both have."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum

import numpy as np

from fleetrank.analysis.arrays.pareto import (
    Mask,
    additive_epsilon,
    frontier,
    hypervolume,
    noisy_frontier,
    overlaps,
)
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.conditions import Pair
from fleetrank.analysis.panel.draws import PairBlock, blocks
from fleetrank.analysis.panel.panel import Panel
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.measured.process_noise import noise_of
from fleetrank.analysis.stored.cell_values import MIN_REPEATS
from fleetrank.foundation.wording import did_you_mean


class Objective(StrEnum):
    """Accuracy is better when larger, quality as its metric says, all others when smaller."""

    ACCURACY = "accuracy"
    QUALITY = "quality"
    LATENCY = "latency"
    MEMORY = "memory"
    ENERGY = "energy"
    FLOPS = "flops"


DEFAULT_OBJECTIVES = "accuracy,latency"
LANGUAGE_OBJECTIVES = "quality,latency"
"""The default of language models, which have no accuracy on images."""
_PROCESSES = {Objective.LATENCY: "latency_p50_ns", Objective.MEMORY: "peak_memory_bytes"}
"""In the order of `Repeats.processes`."""
MODEL_OBJECTIVES = (Objective.ACCURACY, Objective.QUALITY, Objective.FLOPS)
"""These have no noise on a platform: they are properties of the model."""
SHAPES = ("hypervolume_ratio", "epsilon_share", "epsilon_factor")


@dataclass(frozen=True, slots=True)
class FrontierFigures:
    """Of one source and target; NaN is undefined."""

    n_source: float
    n_target: float
    precision: float
    recall: float
    f1: float
    jaccard: float
    chance_precision: float
    flops_precision: float
    flops_recall: float
    flops_f1: float
    noisy_n_source: float
    noisy_n_target: float
    noisy_precision: float
    noisy_recall: float
    noisy_f1: float
    hypervolume_ratio: float
    epsilon_share: float
    epsilon_factor: float


FIGURES = tuple(one.name for one in fields(FrontierFigures))
_FLOPS, _NOISY = FIGURES[7:10], FIGURES[10:15]
Figures = Mapping[str, Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class Objectives:
    """The objectives of the frontiers; smaller is better, NaN is missing.

    Attributes:
        values: (n_models, n_platforms, n_objectives).
        bounds: lower and upper ends of `values` within noise, NaN where not known.
        flops: objectives that need no device, (n_models, n_of_these).
    """

    values: Floats
    bounds: tuple[Floats, Floats]
    flops: Floats


def parse_objectives(text: str) -> tuple[Objective, ...]:
    """Two or more names, separated by commas.

    Raises:
        AnalysisError: a name is unknown or given twice, or there is only one.
    """
    names = [name.strip() for name in text.split(",")]
    known = ", ".join(Objective)
    for name in names:
        if name not in list(Objective):
            hint = did_you_mean(name, Objective)
            raise AnalysisError(f"no objective '{name}'", f"{hint}there are {known}")
    if len(names) < 2 or len(set(names)) < len(names):
        raise AnalysisError(
            f"'{text}' are not two or more different objectives", f"choose from {known}"
        )
    return tuple(Objective(name) for name in names)


def make_objectives(session: Session, names: tuple[Objective, ...], quality: Floats) -> Objectives:
    """The values of the named objectives with their noise, and of those that need no device.

    `quality` is (n_models,), smaller is better, NaN is not measured.
    """
    panel = session.panel
    points = _points(panel, names, quality)
    return Objectives(
        values=points,
        bounds=_noise_bounds(points, session, names),
        flops=_points(panel, by_flops(names), quality)[:, 0],
    )


def pair_frontiers(
    objectives: Objectives, pairs: Sequence[Pair], *, with_shapes: bool
) -> tuple[Floats, Figures]:
    """Common models (n_pairs,) and each of `FIGURES` (n_pairs,), source first; NaN is undefined.

    Without `with_shapes`, figures that are computed pair by pair are undefined.
    """
    n_models = np.zeros(len(pairs))
    figures = {name: np.full(len(pairs), np.nan) for name in FIGURES}
    present = np.asarray(np.isfinite(objectives.values).all(axis=2))
    for block in blocks(present, pairs):
        n_models[block.where] = block.models.size
        if block.models.size:
            for name, found in _block_figures(objectives, block, with_shapes).items():
                figures[name][block.where] = found
    return n_models, figures


def frontiers_of(values: Floats, block: PairBlock) -> Mask:
    """Which of the block's models are on the frontier of each of its platforms.

    From (n_models, n_platforms, n_objectives) to (n_models, n_platforms) of the block.
    """
    mine = values[np.ix_(block.models, block.columns)]
    return np.column_stack([frontier(mine[:, at]) for at in range(block.columns.size)])


def _block_figures(
    objectives: Objectives, block: PairBlock, with_shapes: bool
) -> dict[str, Floats]:
    values = objectives.values[np.ix_(block.models, block.columns)]
    masks = frontiers_of(objectives.values, block)
    found = overlaps(masks, block.source, block.target)
    found |= _against_flops(objectives.flops[block.models], masks, block)
    found |= _within_noise(objectives.bounds, block)
    return found | (_shapes(values, masks, block) if with_shapes else {})


def _against_flops(points: Floats, masks: Mask, block: PairBlock) -> dict[str, Floats]:
    if not np.isfinite(points).all():
        return {}
    both = np.column_stack([masks, frontier(points)])
    baseline = np.full(block.target.size, masks.shape[1])
    found = overlaps(both, baseline, block.target)
    return {name: found[name.removeprefix("flops_")] for name in _FLOPS}


def _within_noise(bounds: tuple[Floats, Floats], block: PairBlock) -> dict[str, Floats]:
    low, high = (end[np.ix_(block.models, block.columns)] for end in bounds)
    known = np.asarray(np.isfinite(low + high).all(axis=(0, 2)))
    masks = np.zeros(low.shape[:2], dtype=np.bool_)
    for at in np.flatnonzero(known):
        masks[:, at] = noisy_frontier(low[:, at], high[:, at])
    both = np.flatnonzero(known[block.source] & known[block.target])
    found = overlaps(masks, block.source[both], block.target[both])
    figures = {name: np.full(block.source.size, np.nan) for name in _NOISY}
    for name, part in figures.items():
        part[both] = found[name.removeprefix("noisy_")]
    return figures


def _shapes(values: Floats, masks: Mask, block: PairBlock) -> dict[str, Floats]:
    """The quality of the source's frontier, by the target's values."""
    found = np.full((len(SHAPES), block.source.size), np.nan)
    for target in np.unique(block.target):
        here = values[:, target]
        worst = here.max(axis=0)
        whole = hypervolume(here, worst)
        spread = np.ptp(here, axis=0)
        scaled = here / np.where(spread > 0, spread, 1.0)
        logs = _logs(here)
        wanted = masks[:, target]
        for at in np.flatnonzero(block.target == target):
            chosen = masks[:, block.source[at]]
            if whole > 0:
                found[0, at] = min(1.0, hypervolume(here[chosen], worst) / whole)
            found[1, at] = additive_epsilon(scaled[chosen], scaled[wanted])
            if logs is not None:
                found[2, at] = np.exp(additive_epsilon(logs[chosen], logs[wanted]))
    return dict(zip(SHAPES, found, strict=True))


def _logs(values: Floats) -> Floats | None:
    """Logarithms in the same order; of a negated value, that of its inverse. `None` with a 0."""
    if (values == 0).any():
        return None
    logs: Floats = np.sign(values) * np.log(np.abs(values))
    return logs


def _points(panel: Panel, objectives: tuple[Objective, ...], quality: Floats) -> Floats:
    """Values where smaller is better, (n_models, n_platforms, n_objectives); NaN is missing.

    Accuracy is negated. A cost of 0 or less is not a measurement and missing.
    """
    return np.stack([_values(panel, one, quality) for one in objectives], axis=2)


def _noise_bounds(
    points: Floats, session: Session, objectives: tuple[Objective, ...]
) -> tuple[Floats, Floats]:
    """Lower and upper bounds of the values within their noise; NaN where it is not known.

    Latency and memory have their intervals over processes, which need 5 repeats; accuracy, quality
    and FLOPs are exact. The noise of energy is never known.
    """
    low, high = points.copy(), points.copy()
    for at, objective in enumerate(objectives):
        if objective in _PROCESSES:
            noise = noise_of(session, _PROCESSES[objective])
            reach = np.where(noise.n >= MIN_REPEATS, noise.reach, np.nan)
            low[:, :, at] *= np.exp(-reach)
            high[:, :, at] *= np.exp(reach)
        elif objective is Objective.ENERGY:
            low[:, :, at] = high[:, :, at] = np.nan
    return low, high


def by_flops(objectives: tuple[Objective, ...]) -> tuple[Objective, ...]:
    """The objectives that need no device: FLOPs replace all measured ones."""
    return tuple(
        dict.fromkeys(one if one in MODEL_OBJECTIVES else Objective.FLOPS for one in objectives)
    )


def _values(panel: Panel, objective: Objective, quality: Floats) -> Floats:
    shape = panel.latency.shape
    if objective is Objective.ACCURACY:
        return np.broadcast_to(-panel.accuracy[:, None], shape)
    if objective is Objective.QUALITY:
        return np.broadcast_to(quality[:, None], shape)
    costs = {
        Objective.LATENCY: panel.latency,
        Objective.MEMORY: panel.memory,
        Objective.ENERGY: panel.energy,
        Objective.FLOPS: np.broadcast_to(panel.flops[:, None], shape),
    }[objective]
    return np.where(costs > 0, costs, np.nan)
