"""Predicts the log values of one device from those of known devices: a ridge around a consensus.

log t[m, d] = consensus of the known devices[m] + offset[d] + features[m] . weights[d] + error. The
features are the principal deviations of the known devices from their consensus, the consensus
itself (a slope other than 1), log FLOPs, log parameters and the family. A ridge pulls the weights
to 0, so without measured models the prediction is the consensus at the known devices' mean offset.

Source: ridge regression as the mean of a Gaussian prior, Rasmussen and Williams 2006, chapter 2;
its left-out residuals in closed form, Allen 1974.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.ranking import Floats

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
