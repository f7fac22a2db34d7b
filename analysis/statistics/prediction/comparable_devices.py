"""Which known platforms may serve to predict a platform, and their values beside its own.

Other devices serve only if runtime, backend, mode, precision, batch and every fact that must be
equal inside a platform are equal, the version of the runtime excepted. The device itself serves in
any other configuration with equal batch and origin: its values are moved to the same level.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.statistics.prediction.device_fit import (
    FACT_NAMES,
    FACTS,
    FACTS_ALONE,
    DeviceValues,
    fact_columns,
)
from fleetrank.analysis.stored.name_patterns import fits_platform
from fleetrank.analysis.stored.scope import EQUAL_INSIDE_PLATFORM

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
        .agg(pl.col(name).drop_nulls().sort().first() for name in (*FACT_NAMES, "family"))
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
    logs, share = _matrix(table, models, names), FACTS
    if sources.is_empty():
        # A device that is equally fast for all models: the facts explain the rest.
        names, logs, share = [("none", "")], np.zeros((len(models), 1)), FACTS_ALONE
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
