"""Which known devices may serve to predict a platform, and their values beside its own.

Values are mixed only if runtime, backend, mode, precision, batch and every fact that must be equal
inside a platform are equal, the version of the runtime excepted.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.statistics.prediction.device_fit import fact_columns
from fleetrank.analysis.statistics.prediction.device_intervals import DeviceValues
from fleetrank.analysis.stored.scope import EQUAL_INSIDE_PLATFORM
from fleetrank.analysis.stored.selection import fits_platform

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
    alike = [name for name in ALIKE if name not in _MAY_DIFFER or _matters(name, column)]
    others = usable.join(first.select(alike), on=alike, how="semi", nulls_equal=True)
    others = others.filter(fits_platform(source, None))
    if is_new:
        others = others.join(first.select("tier"), on="tier", how="semi", nulls_equal=True)
    else:
        others = others.join(first.select("device"), on="device", how="anti")
    table = _by_device(_in_same_place(others, first), column)
    own = {} if is_new else dict(_own(usable, platform).select("identity", column).iter_rows())
    return _arranged(cells, platform, table, own)


def _matters(name: str, column: str) -> bool:
    return name == "memory_metric" and column == "peak_memory_bytes"


def _own(usable: pl.DataFrame, platform: str) -> pl.DataFrame:
    return usable.filter(pl.col("platform_key") == platform)


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
