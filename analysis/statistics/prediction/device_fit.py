"""Predicts the log values of one device from known devices: a weighted mean, and a ridge around it.

Each known platform is moved by its mean difference to the measured models of the device, and
weighs as `closeness` says. What the weighted mean leaves at the measured models is explained by
the deviations of the platforms from it, the mean itself (a slope other than 1), log FLOPs, log
parameters and the family; a ridge pulls their coefficients to 0.

Source: ridge regression as the mean of a Gaussian prior, Rasmussen and Williams 2006, chapter 2.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fleetrank.analysis.arrays.kept_order import closeness
from fleetrank.analysis.arrays.ranking import Floats

# Chosen on public data; half or twice as much changes the median error by about 2 %.
FLOOR = 0.01
"""Added to each spread; smaller than for the order of two models, where the spread is judged."""
_NOISE = 0.3
"""Variance of a model's error beside that of the known platforms around their mean."""
FACTS = 0.2
"""Prior variance of the weights of slope, FLOPs, parameters and family, in the same unit."""
FACTS_ALONE = 30.0
"""The same without a source: the facts must then explain the values alone."""
_LEAST_LEVEL = 0.25
"""Variance of a device's log level, a factor of e^0.5: few known devices can be equal by chance,
and the first measured models must then still decide how fast a new device is."""
_UNKNOWN_LEVEL = 100.0
"""The same where fewer than two devices show how far levels differ: a factor of e^10."""
_SPREAD_WEIGHT = 4.0
"""A model's spread counts as its devices beside this many of the usual one."""
_ROUNDS = 20
"""Rounds of alternating means; the additive fit of a panel with gaps converges in fewer."""
_MOST_SOURCES = 30
"""Platforms that a prediction uses: those with the largest weights."""
_FOLDS = 20
"""Measured models that are left out on their own; of more, some are left out together."""
FACT_NAMES = ("flops", "parameters")
Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceValues:
    """What is known for the prediction of one platform; logarithms, NaN missing.

    Attributes:
        logs: values, (n_models, n_platforms).
        facts: as `fact_columns`, times the prior standard deviation of their weights.
        devices: number of the device of each platform, (n_platforms,).
        is_alike: whether it has the configuration of the target, (n_platforms,).
        target: column of the platform to predict.
    """

    logs: Floats
    facts: Floats
    devices: Indices
    is_alike: Mask
    target: int

    @property
    def own(self) -> Floats:
        """The values of the target, (n_models,)."""
        return self.logs[:, self.target]

    def others(self, column: int) -> Indices:
        """The other devices in the target's configuration."""
        is_other = self.is_alike & (self.devices != self.devices[column])
        return np.flatnonzero(is_other & (np.arange(self.devices.size) != self.target))

    def sources(self, column: int) -> Indices:
        """These, and the device itself in other configurations."""
        itself = (self.devices == self.devices[column]) & ~self.is_alike
        return np.concatenate([self.others(column), np.flatnonzero(itself)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of a platform without its own values.

    Attributes:
        logs: the sources at one level, the usual one of the other devices, (n_models, n_sources).
        devices: number of the device of each source, (n_sources,).
        facts: with unit prior variance, (n_models, n_columns).
        spread: variance of a model's error beside that of the usual model, (n_models,).
        level: variance of the platform's level without a measured model.
    """

    logs: Floats
    devices: Indices
    facts: Floats
    spread: Floats
    level: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Predictions of some models; NaN for a model that no source measured.

    Attributes:
        centre: logarithms, (n,).
        width: expected size of their errors, up to a factor of the device, (n,).
    """

    centre: Floats
    width: Floats

    def scores(self, logs: Floats) -> Floats:
        """Errors in units of the width, of the models that are predicted and known."""
        found: Floats = (logs - self.centre) / self.width
        return found[np.isfinite(found)]


def fact_columns(models: pl.DataFrame) -> Floats:
    """Log FLOPs, log parameters and a column per family, (n_models, n_columns).

    Mean 0 and standard deviation 1 of the known values; an unknown one (null, or not above 0)
    becomes 0, the mean. Constant columns are left out.
    """
    above = [pl.when(pl.col(name) > 0).then(name).cast(pl.Float64).log() for name in FACT_NAMES]
    families = models["family"].drop_nulls().unique().sort()
    are = [(pl.col("family") == one).cast(pl.Float64).alias(f"is {one}") for one in families]
    columns = models.select(*above, *are).cast(pl.Float64).fill_null(np.nan)
    standard = [_standardised(column.to_numpy()) for column in columns]
    return np.column_stack([np.zeros((models.height, 0)), *(one for one in standard if one.any())])


def known_of(values: DeviceValues, column: int) -> Known:
    """What is known of a platform without its own values."""
    sources = values.sources(column)
    logs = values.logs[:, sources]
    levels = _levels(logs)
    usual = levels[values.is_alike[sources]] if values.is_alike[sources].any() else levels
    gathered = float(usual.var(ddof=1)) if usual.size > 1 else _UNKNOWN_LEVEL
    return Known(
        logs=logs - levels + usual.mean(),
        devices=values.devices[sources],
        facts=values.facts,
        spread=_spread(logs - levels),
        level=max(gathered, _LEAST_LEVEL) * (1 + 1 / usual.size),
    )


def fit(known: Known, own: Floats, measured: Indices) -> Fit:
    """Predicts every model on a platform from its values at some models.

    Args:
        known: of the platform.
        own: its values, (n_models,); only those of `measured` are used.
        measured: rows, (k,).
    """
    logs, weights = _moved(known, own, measured)
    mean = _average(logs, weights, axis=1)
    deviations = np.nan_to_num(logs - mean[:, None]) * np.sqrt(weights)
    measured = measured[np.isfinite(own[measured] - mean[measured])]
    missed, spread = own[measured] - mean[measured], known.spread[measured]
    within = float((missed**2 / spread).sum()) / (missed.size - 1) if missed.size > 1 else 0.0
    between = float(((deviations**2).sum(axis=1) / known.spread).mean())
    variance = (between + within) / 2 + FLOOR**2
    facts = np.column_stack([math.sqrt(FACTS) * _standardised(mean), known.facts])
    level = _LEAST_LEVEL if measured.size else known.level
    design = np.column_stack(
        [deviations, math.sqrt(variance) * facts, np.full(mean.size, math.sqrt(level))]
    )
    noise = _NOISE * variance * known.spread
    mine = design[measured].T / noise[measured]
    pull = design @ np.linalg.inv(np.eye(design.shape[1]) + mine @ design[measured])
    return Fit(
        centre=mean + pull @ (mine @ missed),
        width=np.sqrt(noise + np.einsum("ij,ij->i", pull, design)),
    )


def left_out(known: Known, own: Floats, measured: Indices) -> Fit:
    """Predicts each of the models `measured` (k,) from the others."""
    centre, width = np.full((2, measured.size), np.nan)
    fold = np.arange(measured.size) % _FOLDS
    for number in range(min(measured.size, _FOLDS)):
        is_out = fold == number
        found = fit(known, own, measured[~is_out])
        centre[is_out] = found.centre[measured[is_out]]
        width[is_out] = found.width[measured[is_out]]
    return Fit(centre=centre, width=width)


def _moved(known: Known, own: Floats, measured: Indices) -> tuple[Floats, Floats]:
    """The sources at the level of the platform, and their weights."""
    n_sources = known.logs.shape[1]
    weights = closeness(
        np.column_stack([known.logs, own]),
        n_sources,
        measured,
        np.arange(n_sources),
        np.append(known.devices, -1),
        floor=FLOOR,
    )
    near = np.argsort(-weights, kind="stable")[:_MOST_SOURCES]
    logs, weights = known.logs[:, near], weights[near] / weights[near].sum()
    shift = _average(own[measured, None] - logs[measured], 1 / known.spread[measured, None], axis=0)
    usual = _average(shift, weights, axis=0)
    return logs + np.where(np.isfinite(shift), shift, np.nan_to_num(usual)), weights


def _average(values: Floats, weights: Floats | float, axis: int) -> Floats:
    """The weighted mean of the known values; NaN where there is none."""
    is_known = np.isfinite(values)
    total = (is_known * weights).sum(axis=axis)
    sums = (np.where(is_known, values, 0.0) * weights).sum(axis=axis)
    mean: Floats = sums / np.where(total > 0, total, np.nan)
    return mean


def _levels(logs: Floats) -> Floats:
    """Platforms' effects beside those of models, by least squares; NaN is left out."""
    levels = np.zeros(logs.shape[1])
    for _ in range(_ROUNDS):
        models = _average(logs - levels, 1.0, axis=1)
        levels = np.nan_to_num(_average(logs - models[:, None], 1.0, axis=0))
    return levels


def _spread(logs: Floats) -> Floats:
    """Variance of each model between platforms at one level beside the usual one, (n_models,)."""
    squares = np.nan_to_num((logs - _average(logs, 1.0, axis=1)[:, None]) ** 2).sum(axis=1)
    free = np.maximum(np.isfinite(logs).sum(axis=1) - 1, 0)
    usual = max(float(squares.sum()) / max(int(free.sum()), 1), FLOOR**2)
    spread: Floats = (squares / usual + _SPREAD_WEIGHT) / (free + _SPREAD_WEIGHT)
    return spread


def _standardised(values: Floats) -> Floats:
    centred = values - _average(values, 1.0, axis=0)
    size = np.sqrt(_average(centred**2, 1.0, axis=0))
    return np.nan_to_num(centred / size) if size > 1e-12 else np.zeros(values.size)
