"""The single processes and sweeps of a panel's values, as arrays."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.panel.panel import Panel, positions
from fleetrank.analysis.stored.comparable import IDENTITY
from fleetrank.analysis.stored.load import last_attempts, valid_attempts

_VALUES = ("latency_p50_ns", "peak_memory_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """The values from which a panel's medians are computed; NaN without a value.

    Attributes:
        processes: latency and run-peak memory of every process of the newest sweep,
            (2, n_models, n_platforms, n_repeats).
        sweeps: their medians in every sweep of the same model and platform, old ones included,
            (2, n_models, n_platforms, n_sweeps). On one platform a layer is one sweep for every
            model, in the order of the sweeps' ids. A job that a publisher repeats in a later
            release is one measurement and stands in its first release only.
    """

    processes: Floats
    sweeps: Floats


def repeats_of(panel: Panel, comparable: pl.DataFrame, attempts: pl.LazyFrame) -> Repeats:
    """The single measurements of a panel, from its comparable cells and the selected attempts."""
    key = ("model", "platform_key", "cell_key")
    cells = comparable.select(*key, "identity", "memory_metric", "sample_kind", *IDENTITY).lazy()
    newest = valid_attempts(attempts).join(cells.select(*key, "identity"), on=key)
    # A later sweep may have another runtime; facts that change a figure's meaning must be equal.
    same = ("model", "platform_key", "memory_metric", "sample_kind", *IDENTITY)
    every = (
        _first_publications(last_attempts(attempts))
        .join(cells.select("identity", *same), on=same, nulls_equal=True)
        .group_by("identity", "platform_key", "sweep_id")
        .agg(pl.col(name).median() for name in _VALUES)
    )
    repeat = pl.int_range(pl.len()).over("identity", "platform_key", order_by="repeat")
    sweep = pl.col("sweep_id").rank("dense").over("platform_key") - 1
    return Repeats(processes=_cube(newest, panel, repeat), sweeps=_cube(every, panel, sweep))


def _first_publications(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Rows without those of published jobs that an earlier sweep of the same source has."""
    job = pl.col("runtime_settings").str.json_path_match("$.job_id")
    return (
        rows.with_columns(pl.when(pl.col("source").is_not_null()).then(job).alias("job"))
        .filter(
            pl.col("job").is_null()
            | (pl.col("sweep_id") == pl.col("sweep_id").min().over("source", "job"))
        )
        .drop("job")
    )


def _cube(rows: pl.LazyFrame, panel: Panel, layer: pl.Expr) -> Floats:
    """Values of the rows, (2, n_models, n_platforms, n_layers); `layer` counts from 0."""
    placed = rows.select(
        "identity",
        "platform_key",
        layer.alias("layer"),
        *(pl.col(name).cast(pl.Float64) for name in _VALUES),
    ).collect()
    at = (
        positions(panel.models, placed["identity"]),
        positions(panel.keys, placed["platform_key"]),
        placed["layer"].cast(pl.Int64).to_numpy(),
    )
    shape = (len(panel.models), len(panel.keys), int(at[2].max(initial=0)) + 1)
    cube = np.full((len(_VALUES), *shape), np.nan)
    for number, name in enumerate(_VALUES):
        cube[number][at] = placed[name].to_numpy()
    return np.where(cube > 0, cube, np.nan)
