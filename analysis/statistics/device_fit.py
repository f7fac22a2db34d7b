"""Predicts the log values of one device from those of known devices: a ridge around a consensus.

log t[m, d] = consensus of the known devices[m] + offset[d] + features[m] . weights[d] + error. The
features are the principal deviations of the known devices from their consensus, the consensus
itself (a slope other than 1), log FLOPs, log parameters and the family. A ridge pulls the weights
to 0, so without measured models the prediction is the consensus at the known devices' mean offset.

Source: ridge regression as the mean of a Gaussian prior, Rasmussen and Williams 2006, chapter 2;
its left-out residuals in closed form, Allen 1974.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.stored.scope import EQUAL_INSIDE_PLATFORM
from fleetrank.analysis.stored.selection import fits_platform

STIFFNESS = (0.0, 0.5, 2.0, 8.0, 32.0)
"""Candidate variances of the weights, in units of the error's variance; 0 fits the offset only."""
FACTS_SHARE = 0.1
"""Prior variance of the weights of FLOPs, parameters, family and slope beside those of devices."""
FACTS_ALONE = 100.0
"""The same without a known device: FLOPs and parameters must then explain the values alone."""
MAX_DEVIATIONS = 8
"""Principal deviations kept; a device has too few measured models to use more."""
PRIOR_MODELS = 10.0
"""A device's few left-out residuals weigh as their number beside this many of other devices."""
_MIN_VARIANCE = 1e-4
"""Variance of a log value: repeats of one process differ by one per cent on any device."""
_UNKNOWN_OFFSET = 100.0
"""Variance of a device's log offset where fewer than two devices show how far offsets differ."""
_LEAST_OFFSET = 0.25
"""Variance of a device's log offset, a factor of e^0.5: few known devices can be equal by chance,
and the first measured models must then still decide how fast a new device is."""
_ROUNDS = 20
"""Rounds of alternating means; the additive fit of a panel with gaps converges in fewer."""
_SPREAD_WEIGHT = 4.0
"""A model's spread over devices counts as its devices beside this many of the average model."""

Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What known devices and the models' facts say of a device that is not among them.

    Attributes:
        prior: expected log value, (n_models,).
        is_known: whether a known device measured the model, (n_models,); with no device, all.
        offset: prior standard deviation of the device's offset, in units of the error's.
        features: with unit prior variance at stiffness 1, (n_models, n_features).
        spread: expected size of a model's error beside that of the average model, (n_models,).
    """

    prior: Floats
    is_known: Mask
    offset: float
    features: Floats
    spread: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A device's predictions at one stiffness from its `k` measured models; logarithms.

    Attributes:
        predicted: of all models, (n_models,).
        width: expected size of their errors up to the device's factor, (n_models,).
        left_out: measured minus predicted without this model, (k,).
        left_width: as `width`, of the left-out predictions, (k,).
        left: 1 - leverage of each measured model, (k,).
        pull, mine: the fit in factors, (n_models, n_columns) and (k, n_columns); see `gain`.
    """

    predicted: Floats
    width: Floats
    left_out: Floats
    left_width: Floats
    left: Floats
    pull: Floats
    mine: Floats

    def gain(self, number: int) -> Floats:
        """Change of each prediction per unit of the left-out residual of a measured model."""
        gain: Floats = self.pull @ self.mine[number]
        return gain


def fact_columns(flops: Floats, parameters: Floats, families: Sequence[str | None]) -> Floats:
    """Log FLOPs, log parameters and a column per family, (n_models, n_columns), mean 0 and sd 1.

    An unknown value (NaN, or not above 0) becomes 0, the mean. Constant columns are left out.
    """
    named = sorted({family for family in families if family is not None})
    columns = [_log(flops), _log(parameters)]
    columns += [
        np.array([np.nan if one is None else float(one == name) for one in families])
        for name in named
    ]
    standard = [_standardised(column) for column in columns]
    kept = [column for column in standard if column.any()]
    return np.column_stack(kept) if kept else np.zeros((len(families), 0))


def basis_of(logs: Floats, facts: Floats) -> Basis:
    """From log values (n_models, n_devices), NaN missing, and `fact_columns`."""
    n_models, n_devices = logs.shape
    known = np.isfinite(logs)
    if n_devices == 0:
        return Basis(
            prior=np.zeros(n_models),
            is_known=np.ones(n_models, dtype=np.bool_),
            offset=float(np.sqrt(_UNKNOWN_OFFSET / _MIN_VARIANCE)),
            features=np.sqrt(FACTS_ALONE) * facts,
            spread=np.ones(n_models),
        )
    consensus, offsets, weights = _additive(logs)
    is_known: Mask = np.logical_or.reduce(known, axis=1)
    deviations = np.where(known, logs - consensus[:, None] - offsets, 0.0)
    free = max(int(known.sum() - is_known.sum() - n_devices + 1), 1)
    variance = max(float((deviations**2).sum()) / free, _MIN_VARIANCE)
    slope = _standardised(np.where(is_known, consensus, np.nan))[:, None]
    gathered = float(np.var(offsets, ddof=1)) if n_devices > 1 else _UNKNOWN_OFFSET
    return Basis(
        prior=consensus + float(offsets.mean()),
        is_known=is_known,
        offset=float(np.sqrt(max(gathered, _LEAST_OFFSET) * (1 + 1 / n_devices) / variance)),
        features=np.column_stack(
            [
                _principal(deviations * np.sqrt(weights)),
                np.sqrt(FACTS_SHARE) * np.column_stack([slope, facts]),
            ]
        ),
        spread=_spread(deviations, known, variance),
    )


def fit(basis: Basis, measured: Indices, logs: Floats, stiffness: float) -> Fit:
    """Fits a device with `logs` (k,) at the models `measured` (k,), from k = 0 on."""
    design = np.column_stack(
        [np.full(basis.prior.size, basis.offset), np.sqrt(stiffness) * basis.features]
    )
    mine = design[measured]
    inverse = np.linalg.inv(np.eye(design.shape[1]) + mine.T @ mine)
    surprise = logs - basis.prior[measured]
    pull: Floats = design @ inverse
    left = np.maximum(1 - np.einsum("ij,ij->i", pull[measured], mine), 1e-12)
    variance = 1 + np.einsum("ij,ij->i", pull, design)
    fitted = pull @ (mine.T @ surprise)
    return Fit(
        predicted=basis.prior + fitted,
        width=basis.spread * np.sqrt(variance),
        left_out=(surprise - fitted[measured]) / left,
        left_width=basis.spread[measured] / np.sqrt(left),
        left=left,
        pull=pull,
        mine=mine,
    )


def _additive(logs: Floats) -> tuple[Floats, Floats, Floats]:
    """Models' and devices' effects by weighted least squares, and the devices' weights.

    A device whose values deviate more has less weight. NaN is left out; a model without any value
    gets the mean of the others.
    """
    known = np.isfinite(logs)
    filled = np.where(known, logs, 0.0)
    per_device = known.sum(axis=0)
    weights, offsets = np.ones(logs.shape[1]), np.zeros(logs.shape[1])
    for _ in range(_ROUNDS):
        per_model = known @ weights
        effects = (filled - known * offsets) @ weights / np.where(per_model > 0, per_model, 1.0)
        offsets = (filled - known * effects[:, None]).sum(axis=0) / np.maximum(per_device, 1)
        squares = np.where(known, logs - effects[:, None] - offsets, 0.0) ** 2
        variances = squares.sum(axis=0) / np.maximum(per_device, 1)
        floor = max(float(np.median(variances)), _MIN_VARIANCE)
        weights = 1 / (variances + floor)
        weights /= weights.mean()
    middle = effects[per_model > 0].mean() if per_model.any() else 0.0
    return np.where(per_model > 0, effects, middle), offsets, weights


def _principal(deviations: Floats) -> Floats:
    """The leading principal components, scaled so that the mean square of all together is 1."""
    total = float((deviations**2).mean()) * deviations.shape[1]
    if total <= 0:
        return np.zeros((deviations.shape[0], 0))
    left, sizes, _ = np.linalg.svd(deviations / np.sqrt(total), full_matrices=False)
    components: Floats = (left * sizes)[:, :MAX_DEVIATIONS]
    return components


def _spread(deviations: Floats, known: Mask, variance: float) -> Floats:
    """Root mean square of each model's deviations, pulled to that of all models."""
    squares = (deviations**2).sum(axis=1) / variance
    free = np.maximum(known.sum(axis=1) - 1, 0)
    spread: Floats = np.sqrt((_SPREAD_WEIGHT + squares) / (_SPREAD_WEIGHT + free))
    return spread


def _log(values: Floats) -> Floats:
    logs: Floats = np.log(np.where(values > 0, values, np.nan))
    return logs


def _standardised(values: Floats) -> Floats:
    known = np.isfinite(values)
    if not known.any():
        return np.zeros(values.size)
    centred = np.where(known, values - values[known].mean(), 0.0)
    size = float(np.sqrt((centred**2).mean()))
    return centred / size if size > 1e-12 else np.zeros(values.size)


# Intervals from weighted endpoints: the end of a jackknife+ with groups; arrays only.
#
# Source: Barber, Candes, Ramdas and Tibshirani 2021, equation 1, with a weight for each score.

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


# Predictions of one device with distribution-free intervals; arrays only.
#
# Every other device is treated as if it were new: the same models count as measured on it, and
# the rest is predicted without it. Its errors, and the left-out errors of the target's own
# measured models, calibrate the interval. Each device has the same weight, the target's errors
# included; the weight 1 / (n_devices * (k + 1)) stands for the value to predict and lies at
# infinity.
#
# Source: hierarchical conformal prediction, Lee, Barber and Willett 2023 (Dunn, Wasserman and
# Ramdas 2023 for a group without observations); endpoints as in jackknife+ and CV+, Barber,
# Candes, Ramdas and Tibshirani 2021, equation 1.

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


# Which known devices may serve to predict a platform, and their values beside its own.
#
# Values are mixed only if runtime, backend, mode, precision, batch and every fact that must be
# equal inside a platform are equal, the version of the runtime excepted.

ALIKE = ("runtime", "backend", "mode", "precision", "batch", *EQUAL_INSIDE_PLATFORM)
"""Facts that are equal on all platforms of one prediction, apart from `_MAY_DIFFER`."""
_MAY_DIFFER = ("runtime_version", "memory_metric")
"""A device has the version that it can run. The metric matters to memory only."""
_SAME_PLACE = ("threads", "affinity")
"""Of several platforms of one device, those like the target's are taken, if there are any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Values for the prediction of one platform.

    Attributes:
        platform: its key; of a device without values, a key that says so.
        models: (n_models,), those that a prediction is possible for, sorted.
        values: their logarithms and facts.
        devices: names of the known device models, (n_devices,), sorted.
    """

    platform: str
    models: tuple[str, ...]
    values: DeviceValues
    devices: tuple[str, ...]


def neighbours_of(
    cells: pl.DataFrame, platform: str, column: str, source: str | None, *, is_new: bool
) -> Neighbours:
    """The known devices that are comparable with a platform, and the models to predict.

    Args:
        cells: of `session.comparable`.
        platform: its key.
        column: the quantity, such as `latency_ns`.
        source: only known devices that match; `None` takes all.
        is_new: the device was not measured: `platform` is of another device, which is one of the
            known devices, and only devices of its tier are used.

    Raises:
        NoDataError: no comparable device is known, and the platform has too few values for a line
            through FLOPs and parameters.
    """
    usable = cells.filter(pl.col(column) > 0)
    first = cells.filter(pl.col("platform_key") == platform).head(1)
    matters = "memory_metric" if column == "peak_memory_bytes" else None
    alike = [name for name in ALIKE if name not in _MAY_DIFFER or name == matters]
    others = usable.join(first.select(alike), on=alike, how="semi", nulls_equal=True)
    others = others.filter(fits_platform(source, None))
    if is_new:
        others = others.join(first.select("tier"), on="tier", how="semi", nulls_equal=True)
    else:
        others = others.join(first.select("device"), on="device", how="anti")
    table = _by_device(_in_same_place(others, first), column)
    mine = usable.filter(pl.col("platform_key") == platform).select("identity", column)
    own = {} if is_new else dict(mine.iter_rows())
    return _arranged(cells, platform, table, own)


def _in_same_place(others: pl.DataFrame, first: pl.DataFrame) -> pl.DataFrame:
    """Of each device, the platforms with the target's threads and cores, else all of them."""
    same = pl.all_horizontal(
        pl.col(name).eq_missing(pl.lit(first[name].to_list()[0], dtype=first.schema[name]))
        for name in _SAME_PLACE
    )
    return others.with_columns(same.alias("is_same")).filter(
        pl.col("is_same") | ~pl.col("is_same").any().over("device")
    )


def _by_device(others: pl.DataFrame, column: str) -> pl.DataFrame:
    """Mean log value of each model on each device model: identity, device_model, value."""
    return (
        others.group_by("identity", pl.coalesce("device_model", "device").alias("device_model"))
        .agg(pl.col(column).cast(pl.Float64).log().mean().alias("value"))
        .sort("identity", "device_model")
    )


def _arranged(
    cells: pl.DataFrame, platform: str, table: pl.DataFrame, own: dict[str, float]
) -> Neighbours:
    facts = (
        cells.group_by("identity")
        .agg(pl.col(name).drop_nulls().sort().first() for name in ("flops", "parameters", "family"))
        .sort("identity")
    )
    devices = table["device_model"].unique().sort().to_list()
    has_basis = pl.col("identity").is_in([*table["identity"].unique(), *own])
    has_facts = (pl.col("flops") > 0) | (pl.col("parameters") > 0)
    facts = facts.filter(has_basis if devices else has_facts)
    if facts.is_empty() or not (devices or len(own) >= MIN_MODELS):
        raise NoDataError(
            f"nothing predicts {platform}: no other device has such a figure with the same "
            "runtime, backend, mode, precision, batch and kind of figure",
            f"measure {MIN_MODELS} models on it, or import another device in this configuration",
        )
    models = facts["identity"].to_list()
    return Neighbours(
        platform=platform,
        models=tuple(models),
        values=DeviceValues(
            others=_matrix(table, models, devices),
            own=np.log([own.get(model, np.nan) for model in models]),
            facts=fact_columns(
                facts["flops"].cast(pl.Float64).to_numpy(),
                facts["parameters"].cast(pl.Float64).to_numpy(),
                facts["family"].to_list(),
            ),
        ),
        devices=tuple(devices),
    )


def _matrix(table: pl.DataFrame, models: list[str], devices: list[str]) -> Floats:
    row = {name: at for at, name in enumerate(models)}
    column = {name: at for at, name in enumerate(devices)}
    matrix = np.full((len(models), len(devices)), np.nan)
    for model, device, value in table.iter_rows():
        matrix[row[model], column[device]] = value
    return matrix
