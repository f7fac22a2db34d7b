"""Predictions of one device with distribution-free intervals; arrays only.

Every other device is treated as if it were new: the same models count as measured on it, and the
rest is predicted without it. Its errors, and the left-out errors of the target's own measured
models, calibrate the interval. Each device has the same weight, the target's errors included; the
weight 1 / (n_devices * (k + 1)) stands for the value to predict and lies at infinity.

Source: hierarchical conformal prediction, Lee, Barber and Willett 2023 (Dunn, Wasserman and Ramdas
2023 for a group without observations); endpoints as in jackknife+ and CV+, Barber, Candes, Ramdas
and Tibshirani 2021, equation 1.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.statistics.prediction.device_fit import (
    PRIOR_MODELS,
    STIFFNESS,
    Basis,
    Fit,
    Indices,
    basis_of,
    fit,
)
from fleetrank.analysis.statistics.prediction.weighted_ends import (
    ROUNDING,
    Group,
    interval_of,
    weight_at_infinity,
)

MAX_DEVICES = 60
"""Devices that are treated as new; of more, this many are drawn."""
MAX_SCORES = 200
"""Errors kept of a device that was treated as new; thinning makes an interval wider, never
narrower."""
_LEAST_FACTOR = 1e-6
"""Devices whose models are all predicted exactly have errors of 0, which cannot be divided by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceValues:
    """What is known for the prediction of one device; logarithms, NaN missing.

    Attributes:
        others: values on the known devices, (n_models, n_devices).
        own: values measured on the target, (n_models,).
        facts: as `device_fit.fact_columns`, (n_models, n_columns).
    """

    others: Floats
    own: Floats
    facts: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Predictions of every model on the target; logarithms, NaN undefined.

    Attributes:
        centre: (n_models,); of a measured model, predicted without its value. NaN for a model that
            no known device measured.
        low, high: ends of the interval, (n_models,); infinite where the calibration is too small.
        stiffness: chosen one of `STIFFNESS`.
        n_groups: devices that calibrate, the target included.
        k: measured models that are used.
    """

    centre: Floats
    low: Floats
    high: Floats
    stiffness: float
    n_groups: int
    k: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Errors:
    """Absolute errors at every stiffness, (n_stiffness, n).

    Attributes:
        plain: of log values.
        standard: in units of the width that the fit expects.
    """

    plain: Floats
    standard: Floats

    @property
    def n(self) -> int:
        """How many errors there are at each stiffness."""
        return int(self.plain.shape[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Device:
    """A device with some models measured, fitted at every stiffness.

    Attributes:
        fits: one for each of `STIFFNESS`.
        spread: of its basis, (n_models,).
        own: left-out errors, (n_stiffness, k).
        held_out: errors of models that count as not measured, (n_stiffness, n).
    """

    fits: tuple[Fit, ...]
    spread: Floats
    own: _Errors
    held_out: _Errors


@dataclass(frozen=True, slots=True, kw_only=True)
class _Beside:
    """Another device treated as new, and the target seen from the same basis."""

    other: _Device
    target: _Device


def predict_device(values: DeviceValues, coverage: float, rng: np.random.Generator) -> Predicted:
    """Predicts every model on the target at the coverage, from 0.5 to below 1."""
    basis = basis_of(values.others, values.facts)
    measured = np.flatnonzero(np.isfinite(values.own) & basis.is_known)
    target = _device(basis, measured, values.own)
    beside = list(_treated_as_new(values, measured, rng))
    errors = _mean_errors(beside)
    is_own_enough = weight_at_infinity(1, measured.size) <= 1 - coverage + ROUNDING
    used = [] if is_own_enough else beside
    rows = np.flatnonzero(basis.is_known & ~np.isfinite(values.own))
    groups = [_group_of(one, errors, len(used) + 1, rows) for one in used]
    groups.append(_own_group(target, errors, len(used) + 1, rows))
    low, high = np.full((2, values.own.size), np.nan)
    at_infinity = weight_at_infinity(len(groups), measured.size)
    low[rows], high[rows] = interval_of(groups, 1 - coverage, at_infinity)
    at = _chosen(target.own, errors)
    centre = target.fits[at].predicted.copy()
    centre[measured] = values.own[measured] - target.fits[at].left_out
    return Predicted(
        centre=np.where(basis.is_known, centre, np.nan),
        low=low,
        high=high,
        stiffness=STIFFNESS[at],
        n_groups=len(groups),
        k=measured.size,
    )


def more_needed(found: Predicted, n_devices: int, coverage: float) -> tuple[int, int] | None:
    """Further models of the device, or else further known devices, for a finite interval.

    `None` if the interval is finite already.
    """
    least = 1 / (1 - coverage) - ROUNDING
    if found.n_groups * (found.k + 1) >= least:
        return None
    models = math.ceil(least / found.n_groups) - 1 - found.k
    groups = max(math.ceil(least / (found.k + 1)), 3)
    present = found.n_groups if found.n_groups > 1 else n_devices + 1
    return models, max(groups - present, 1)


def _treated_as_new(
    values: DeviceValues, measured: Indices, rng: np.random.Generator
) -> Iterator[_Beside]:
    n_devices = values.others.shape[1]
    if n_devices < 2:
        return
    chosen = list(range(n_devices))
    if n_devices > MAX_DEVICES:
        chosen = sorted(rng.choice(n_devices, MAX_DEVICES, replace=False).tolist())
    for number in chosen:
        basis = basis_of(np.delete(values.others, number, axis=1), values.facts)
        own = np.where(basis.is_known, values.others[:, number], np.nan)
        mine = measured[np.isfinite(own[measured])]
        seen = measured[basis.is_known[measured]]
        if np.isfinite(own).sum() > mine.size:
            yield _Beside(other=_device(basis, mine, own), target=_device(basis, seen, values.own))


def _device(basis: Basis, measured: Indices, own: Floats) -> _Device:
    fits = tuple(fit(basis, measured, own[measured], stiffness) for stiffness in STIFFNESS)
    is_open = np.isfinite(own)
    is_open[measured] = False
    left_out = np.array([one.left_out for one in fits])
    held_out = np.array([(own - one.predicted)[is_open] for one in fits])
    return _Device(
        fits=fits,
        spread=basis.spread,
        own=_errors(left_out, np.array([one.left_width for one in fits])),
        held_out=_errors(held_out, np.array([one.width[is_open] for one in fits])),
    )


def _errors(signed: Floats, widths: Floats) -> _Errors:
    return _Errors(plain=np.abs(signed), standard=np.abs(signed) / widths)


def _without(errors: _Errors, number: int) -> _Errors:
    return _Errors(
        plain=np.delete(errors.plain, number, axis=1),
        standard=np.delete(errors.standard, number, axis=1),
    )


def _mean_errors(beside: Sequence[_Beside]) -> _Errors | None:
    """The other devices' mean errors, (n_stiffness, 1), each device alike; `None` without any."""
    if not beside:
        return None
    held_out = [one.other.held_out for one in beside]
    return _Errors(
        plain=np.mean([one.plain.mean(axis=1) for one in held_out], axis=0)[:, None],
        standard=np.mean([one.standard.mean(axis=1) for one in held_out], axis=0)[:, None],
    )


def _chosen(own: _Errors, others: _Errors | None) -> int:
    """The stiffness with the least error: own left-out errors beside those of other devices."""
    total = own.plain.sum(axis=1)
    if others is not None:
        total = total + PRIOR_MODELS * others.plain[:, 0]
    return int(np.argmin(total))


def _factor(own: _Errors, others: _Errors | None, at: int) -> float:
    """Size of a device's standardised errors at one stiffness."""
    total, n = float(own.standard[at].sum()), float(own.n)
    if others is not None:
        total, n = total + PRIOR_MODELS * float(others.standard[at, 0]), n + PRIOR_MODELS
    return max(total / n, _LEAST_FACTOR) if n else 1.0


def _group_of(one: _Beside, errors: _Errors | None, n_groups: int, rows: Indices) -> Group:
    theirs, mine = _chosen(one.other.own, errors), _chosen(one.target.own, errors)
    scores = _thinned(one.other.held_out.standard[theirs])
    scores = scores / _factor(one.other.own, errors, theirs)
    found = one.target.fits[mine]
    return Group(
        centres=found.predicted[rows, None],
        widths=found.width[rows, None] * _factor(one.target.own, errors, mine),
        scores=scores,
        weight=1 / (n_groups * scores.size),
    )


def _thinned(scores: Floats) -> Floats:
    """At most `MAX_SCORES`: each stands for as many as the others and is the largest of them."""
    n = scores.size
    if n <= MAX_SCORES:
        return scores
    last = np.ceil(np.arange(1, MAX_SCORES + 1) * n / MAX_SCORES).astype(np.int64) - 1
    thinned: Floats = np.sort(scores)[last]
    return thinned


def _own_group(target: _Device, errors: _Errors | None, n_groups: int, rows: Indices) -> Group:
    """The target's left-out errors; no choice for a model uses its own error."""
    k = target.own.n
    shape = (rows.size, k)
    centres, widths, scores = np.zeros(shape), np.zeros(shape), np.zeros(k)
    for number in range(k):
        rest = _without(target.own, number)
        at = _chosen(rest, errors)
        factor = _factor(rest, errors, at)
        found = target.fits[at]
        gain = found.gain(number)[rows]
        # Without this measurement the variance of the prediction is larger: a rank-one update.
        more = (target.spread[rows] * gain) ** 2 / found.left[number]
        centres[:, number] = found.predicted[rows] - gain * found.left_out[number]
        widths[:, number] = np.sqrt(found.width[rows] ** 2 + more) * factor
        scores[number] = target.own.standard[at, number] / factor
    return Group(centres=centres, widths=widths, scores=scores, weight=1 / (n_groups * (k + 1)))
