"""Predicts the log values of one device from known devices: a weighted mean, and a ridge around it.

Each known platform is moved by its mean difference to the measured models of the device, and
weighs as `closeness` says. What the weighted mean leaves at the measured models is explained by
the deviations of the platforms from it, the mean itself (a slope other than 1), log FLOPs, log
parameters and the family; a ridge pulls their coefficients to 0.

Source: ridge regression as the mean of a Gaussian prior, Rasmussen and Williams 2006, chapter 2.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fleetrank.analysis.arrays.kept_order import closeness
from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.stored.scope import EQUAL_INSIDE_PLATFORM
from fleetrank.analysis.stored.selection import fits_platform

# Chosen on public data; half or twice as much changes the median error by about 2 %.
FLOOR = 0.01
"""Added to each spread; smaller than for the order of two models, where the spread is judged."""
_NOISE = 0.3
"""Variance of a model's error beside that of the known platforms around their mean."""
_FACTS = 0.2
"""Prior variance of the weights of slope, FLOPs, parameters and family, in the same unit."""
_FACTS_ALONE = 30.0
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

_FACT_NAMES = ("flops", "parameters")

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
    above = [pl.when(pl.col(name) > 0).then(name).cast(pl.Float64).log() for name in _FACT_NAMES]
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
    facts = np.column_stack([math.sqrt(_FACTS) * _standardised(mean), known.facts])
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


# Predictions of one device with distribution-free intervals; arrays only.
#
# Every other device is treated as if it were new: the same models count as measured on it, and
# the rest is predicted without it and without the target. Its errors, and the left-out errors of
# the target's own measured models, calibrate the interval. All are in units of the width times the
# size of the device's left-out errors, so a device that is predicted badly has wide intervals.
# Each device has the same weight, the target's errors included; the weight
# 1 / (n_devices * (k + 1)) stands for the value to predict and lies at infinity.
#
# Source: hierarchical conformal prediction, Lee, Barber and Willett 2023 (Dunn, Wasserman and
# Ramdas 2023 for a group without observations).

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


# Which known platforms may serve to predict a platform, and their values beside its own.
#
# Other devices serve only if runtime, backend, mode, precision, batch and every fact that must be
# equal inside a platform are equal, the version of the runtime excepted. The device itself serves
# in any other configuration with equal batch and origin: its values are moved to the same level.

ALIKE = ("runtime", "backend", "mode", "precision", "batch", *EQUAL_INSIDE_PLATFORM)
"""Facts that are equal on all platforms of one prediction, apart from `_MAY_DIFFER`."""
_MAY_DIFFER = ("runtime_version", "memory_metric")
"""A device has the version that it can run. The metric matters to memory only."""
_OF_ANY = ("batch", "origin")
"""Facts that are equal on all platforms, those of the device itself included."""
_SAME_PLACE = ("threads", "affinity")
"""Of several platforms of one device, those like the target's are taken, if there are any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Values for the prediction of one platform.

    Attributes:
        platform: its key; of a device without values, a key that says so.
        models: (n_models,), those that a prediction is possible for, sorted.
        values: their logarithms and facts.
        devices: names of the known device models, sorted.
        n_itself: other configurations of the device itself.
    """

    platform: str
    models: tuple[str, ...]
    values: DeviceValues
    devices: tuple[str, ...]
    n_itself: int


def neighbours_of(
    cells: pl.DataFrame, platform: str, column: str, source: str | None, *, is_new: bool
) -> Neighbours:
    """The known platforms that are comparable with a platform, and the models to predict.

    Args:
        cells: of `session.comparable`.
        platform: its key.
        column: the quantity, such as `latency_ns`.
        source: only known devices that match; `None` takes all.
        is_new: the device was not measured: `platform` is of another device, which is one of the
            known devices, and only devices of its tier are used.

    Raises:
        NoDataError: no comparable platform is known, and the platform has too few values for a line
            through FLOPs and parameters.
    """
    first = cells.filter(pl.col("platform_key") == platform).head(1)
    usable = cells.filter(pl.col(column) > 0)
    is_own = pl.lit(value=False) if is_new else pl.col("platform_key") == platform
    own = dict(usable.filter(is_own).select("identity", column).iter_rows())
    others = usable.filter(~is_own, fits_platform(source, first["tier"][0] if is_new else None))
    metric = ("memory_metric",) if column == "peak_memory_bytes" else ()
    table = _placed(others.filter(_equals(first, *_OF_ANY, *metric)), first, is_new, metric)
    table = (
        table.group_by("identity", "owner", "setting")
        .agg(pl.col(column).cast(pl.Float64).log().mean().alias("value"))
        .sort("setting", "owner", "identity")
    )
    return _arranged(cells, platform, table, own)


def _equals(first: pl.DataFrame, *names: str) -> pl.Expr:
    """Whether these facts are those of the first row."""
    return pl.all_horizontal(
        pl.lit(value=True),
        *(pl.col(name).eq_missing(pl.lit(first[name][0], first.schema[name])) for name in names),
    )


def _placed(
    others: pl.DataFrame, first: pl.DataFrame, is_new: bool, metric: tuple[str, ...]
) -> pl.DataFrame:
    """The rows with their device (`owner`, empty for the target's) and configuration (`setting`).

    The setting is empty where it is the target's: of each other device, on the platforms with the
    target's threads and cores, else on all of them.
    """
    alike = [name for name in (*ALIKE, *metric) if name in metric or name not in _MAY_DIFFER]
    is_itself = pl.lit(value=False) if is_new else _equals(first, "device")
    is_alike, is_same = _equals(first, *alike) & ~is_itself, _equals(first, *_SAME_PLACE)
    is_near = is_alike & (is_same | ~(is_same & is_alike).any().over("device"))
    placed = others.with_columns(
        owner=pl.when(is_itself).then(pl.lit("")).otherwise(pl.coalesce("device_model", "device")),
        setting=pl.when(is_near).then(pl.lit("")).otherwise("platform_key"),
    )
    has_alike = (pl.col("setting") == "").any().over("owner")
    return placed.filter(has_alike | (pl.col("owner") == ""))


def _arranged(
    cells: pl.DataFrame, platform: str, table: pl.DataFrame, own: dict[str, float]
) -> Neighbours:
    places = table.select("owner", "setting").unique(maintain_order=True)
    is_source = (pl.col("owner") == "") != (pl.col("setting") == "")
    sources = places.filter(is_source)
    facts = (
        cells.group_by("identity")
        .agg(pl.col(name).drop_nulls().sort().first() for name in (*_FACT_NAMES, "family"))
        .sort("identity")
    )
    known = table.filter(is_source)["identity"].unique()
    has_facts = (pl.col("flops") > 0) | (pl.col("parameters") > 0)
    facts = facts.filter(pl.col("identity").is_in([*known, *own]) if sources.height else has_facts)
    if facts.is_empty() or not (sources.height or len(own) >= MIN_MODELS):
        raise NoDataError(
            f"nothing predicts {platform}: no other device has such a figure with the same "
            "runtime, backend, mode, precision, batch and kind of figure, and the device has none "
            "in another configuration",
            f"measure {MIN_MODELS} models on it, or import another device in this configuration",
        )
    models, names = facts["identity"].to_list(), list(places.iter_rows())
    logs, share = _matrix(table, models, names), _FACTS
    if sources.is_empty():
        # A device that is equally fast for all models: the facts explain the rest.
        names, logs, share = [("none", "")], np.zeros((len(models), 1)), _FACTS_ALONE
    own_logs = np.log([own.get(model, np.nan) for model in models])
    owners, settings = zip(*names, ("", ""), strict=True)
    return Neighbours(
        platform=platform,
        models=tuple(models),
        values=DeviceValues(
            logs=np.column_stack([logs, own_logs]),
            facts=math.sqrt(share) * fact_columns(facts),
            devices=np.unique(owners, return_inverse=True)[1],
            is_alike=np.array(settings) == "",
            target=len(names),
        ),
        devices=tuple(sources.filter(pl.col("setting") == "")["owner"]),
        n_itself=sources.filter(pl.col("owner") == "").height,
    )


def _matrix(
    table: pl.DataFrame, models: Sequence[str], places: Sequence[tuple[str, ...]]
) -> Floats:
    row, column = ({name: at for at, name in enumerate(one)} for one in (models, places))
    matrix = np.full((len(models), len(places)), np.nan)
    for model, owner, setting, value in table.iter_rows():
        if model in row:
            matrix[row[model], column[owner, setting]] = value
    return matrix
