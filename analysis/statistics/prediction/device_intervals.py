"""Predictions of one device with distribution-free intervals; arrays only.

Every other device is treated as if it were new: the same models count as measured on it, and the
rest is predicted without it and without the target. Its errors, and the left-out errors of the
target's own measured models, calibrate the interval. All are in units of the width times the size
of the device's left-out errors, so a device that is predicted badly has wide intervals. Each device
has the same weight, the target's errors included; the weight 1 / (n_devices * (k + 1)) stands for
the value to predict and lies at infinity.

Source: hierarchical conformal prediction, Lee, Barber and Willett 2023 (Dunn, Wasserman and Ramdas
2023 for a group without observations).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.statistics.prediction.device_fit import (
    DeviceValues,
    Indices,
    fit,
    known_of,
    left_out,
)

MAX_DEVICES = 60
"""Devices that are treated as new; of more, this many are drawn."""
_USUAL = 4.0
"""A device's few left-out errors weigh as their number beside this many of the usual size; 2 to 8
give the same coverage within 0.01."""
_LEAST_DEVICES = 4
"""Devices treated as new that are needed to call a device unlike them."""
_LEAST_MODELS = 3
"""Measured models for that: one error can be large by chance."""
UNLIKE = 1.5
"""A device is unlike the others if its expected error is so many times that of the median one, and
larger than that of each of them."""
_MISSES = 0.75
"""Share of the allowed misses that is used, where it can be: at 90 %, the public devices held 0.90
with all of it and 0.92 with three quarters; devices that are asked about are no random draw."""
_ROUNDING = 1e-9
"""Sums of weights are exact to about 1e-12."""
_LEAST_SCORE = 1e-6
"""Devices whose models are all predicted exactly have errors of 0, which cannot be divided by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Predictions of every model on the target; logarithms, NaN undefined.

    Attributes:
        centre: (n_models,); of a measured model, predicted without its value. NaN for a model that
            no source measured.
        low, high: ends of the interval, (n_models,); infinite where the calibration is too small.
        n_groups: devices that calibrate, the target included.
        k: measured models that are used.
        unlike: expected error, the width times the size of the left-out errors, beside that of the
            other devices; `None` for a device like them.
    """

    centre: Floats
    low: Floats
    high: Floats
    n_groups: int
    k: int
    unlike: float | None


def predict_device(values: DeviceValues, coverage: float, rng: np.random.Generator) -> Predicted:
    """Predicts every model on the target at the coverage, from 0.5 to below 1."""
    known, own = known_of(values, values.target), values.own
    found = fit(known, own, np.flatnonzero(np.isfinite(own)))
    measured = np.flatnonzero(np.isfinite(own + found.centre))
    without = left_out(known, own, measured)
    mine = without.scores(own[measured])
    beside = list(_treated_as_new(values, measured, rng))
    sizes = np.array([_size(left) for left, _, _ in beside if left.size])
    usual = max(_size(sizes), _LEAST_SCORE) if sizes.size else None
    scores = [np.abs(held_out) / _factor(left, usual) for left, held_out, _ in beside]
    scores.append(
        np.array([abs(mine[at]) / _factor(np.delete(mine, at), usual) for at in range(mine.size)])
    )
    n = [*(one.size for one in scores[:-1]), mine.size + 1]
    weights = [np.full(one.size, 1 / of) for one, of in zip(scores, n, strict=True)]
    n_groups = len(scores)
    reach = _reach(np.concatenate(scores), np.concatenate(weights) / n_groups, coverage)
    expected = _factor(mine, usual) * found.width
    half = np.where(np.isfinite(own), np.nan, reach * expected)
    theirs = [_factor(left, usual) * np.median(width) for left, _, width in beside if left.size]
    centre = found.centre.copy()
    centre[measured] = without.centre
    return Predicted(
        centre=centre,
        low=centre - half,
        high=centre + half,
        n_groups=n_groups,
        k=measured.size,
        unlike=_unlike(mine.size, float(np.median(expected)), np.array(theirs)),
    )


def more_needed(found: Predicted, n_devices: int, coverage: float) -> tuple[int, int] | None:
    """Further models of the device, or else further known devices, for a finite interval.

    `None` if the interval is finite already.
    """
    least = 1 / (1 - coverage) - _ROUNDING
    if found.n_groups * (found.k + 1) >= least:
        return None
    models = math.ceil(least / found.n_groups) - 1 - found.k
    groups = max(math.ceil(least / (found.k + 1)), 3)
    present = found.n_groups if found.n_groups > 1 else n_devices + 1
    return models, max(groups - present, 1)


def _treated_as_new(
    values: DeviceValues, measured: Indices, rng: np.random.Generator
) -> Iterator[tuple[Floats, Floats, Floats]]:
    """Scores of each other device, of its measured models left out and of the others, and width."""
    chosen = values.others(values.target)
    if chosen.size > MAX_DEVICES:
        chosen = np.sort(rng.choice(chosen, MAX_DEVICES, replace=False))
    for column in chosen:
        logs = values.logs[:, column]
        mine = measured[np.isfinite(logs[measured])]
        is_open = np.isfinite(logs)
        is_open[mine] = False
        if not values.others(column).size:
            continue
        known = known_of(values, column)
        found = fit(known, logs, mine)
        held_out = found.scores(np.where(is_open, logs, np.nan))
        if held_out.size:
            yield left_out(known, logs, mine).scores(logs[mine]), held_out, found.width


def _size(scores: Floats) -> float:
    return float(np.sqrt((scores**2).mean()))


def _factor(left: Floats, usual: float | None) -> float:
    """Size of the errors of a device with some left-out scores; 1 without another device."""
    if usual is None:
        return 1.0
    return math.sqrt((float((left**2).sum()) + _USUAL * usual**2) / (left.size + _USUAL))


def _unlike(n_measured: int, mine: float, theirs: Floats) -> float | None:
    if n_measured < _LEAST_MODELS or theirs.size < _LEAST_DEVICES:
        return None
    factor = mine / float(np.median(theirs))
    return factor if factor > UNLIKE and mine > theirs.max() else None


def _reach(scores: Floats, weights: Floats, coverage: float) -> float:
    """The smallest score with the weight of the coverage, or a little more, at or below it.

    The weights sum to less than 1: the rest lies at infinity.
    """
    order = np.argsort(scores)
    reached = np.cumsum(weights[order])
    if not scores.size or reached[-1] < coverage - _ROUNDING:
        return math.inf
    # With few errors the largest of them would decide: halfway to it is enough.
    share = min(1 - _MISSES * (1 - coverage), (coverage + float(reached[-1])) / 2)
    return float(scores[order[np.searchsorted(reached, share - _ROUNDING)]])
