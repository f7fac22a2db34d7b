"""The single measurements behind a panel: every process, sweep and session."""

from functools import cached_property

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.arrays.reliability import MIN_REPEATS_TO_SPLIT
from fleetrank.analysis.panel.panel import Panel, positions
from fleetrank.analysis.stored.latency_statistic import STATISTIC
from fleetrank.analysis.stored.load import last_attempts, valid_attempts
from fleetrank.analysis.stored.scope import IDENTITY

PAUSE_HOURS = 6
"""A longer pause in a sweep begins another session: the device has cooled down and may have
restarted since. One round of the repeats of a long sweep takes less."""
MEASURED = ("latency_p50_ns", "peak_memory_bytes", "energy_mj")
"""The first axis of the arrays of `Repeats`."""
_SAME_METHOD = ("memory_metric", "sample_kind", STATISTIC)
"""Facts that change what a figure means: sweeps that differ in one are not repeats."""


class Repeats:
    """The values from which a panel's medians are computed; NaN without a value.

    Each array is made when it is first asked for: it reads every stored attempt.
    """

    def __init__(self, panel: Panel, comparable: pl.DataFrame, attempts: pl.LazyFrame) -> None:
        """Takes a panel, its comparable cells and the selected attempts; reads nothing yet."""
        self._panel = panel
        self._comparable = comparable
        self._attempts = attempts

    @cached_property
    def processes(self) -> Floats:
        """Latency, run-peak memory and energy of every process of the newest sweep.

        (3, n_models, n_platforms, n_repeats).
        """
        key = ("model", "platform_key", "cell_key")
        cells = self._comparable.lazy().select(*key, "identity")
        newest = valid_attempts(self._attempts).join(cells, on=key)
        repeat = pl.int_range(pl.len()).over("identity", "platform_key", order_by="repeat")
        return _cube(newest, self._panel, repeat)

    @cached_property
    def sweeps(self) -> Floats:
        """Their medians in every sweep of the same model and platform, old ones included.

        (3, n_models, n_platforms, n_sweeps). On one platform a layer is one sweep for every model,
        in the order of the sweeps' ids. A job that a publisher repeats in a later release is one
        measurement and stands in its first release only.
        """
        sweep = pl.col("sweep_id").rank("dense").over("platform_key") - 1
        alike = alike_attempts(self._comparable, self._attempts)
        return _cube(_medians(alike, "sweep_id"), self._panel, sweep)

    @cached_property
    def sessions(self) -> Floats:
        """Their medians in every session in which a model has 2 repeats or more.

        (3, n_models, n_platforms, n_sessions); see `processes_of_sessions`.
        """
        every = _medians(processes_of_sessions(self._comparable, self._attempts), "session")
        known = every.filter(pl.col("n_repeats") >= MIN_REPEATS_TO_SPLIT)
        return _cube(known, self._panel, pl.col("session"))


def processes_of_sessions(comparable: pl.DataFrame, attempts: pl.LazyFrame) -> pl.LazyFrame:
    """The last ok attempts of every sweep, old ones included, with `identity` and `session`.

    Sessions are numbered from 0 on each platform: each sweep is one, and a long pause begins
    another. Rows of another runtime version than the cell's are left out: a version is not a random
    effect.
    """
    begins = (pl.col("started_utc").diff() > pl.duration(hours=PAUSE_HOURS)).fill_null(value=False)
    part = begins.cum_sum().over("platform_key", "sweep_id", order_by="started_utc")
    name = pl.format("{} {}", "sweep_id", part.cast(pl.String).str.zfill(6))
    return (
        alike_attempts(comparable, attempts, ("runtime_version",))
        .with_columns(name.alias("session"))
        .with_columns(pl.col("session").rank("dense").over("platform_key") - 1)
    )


def alike_attempts(
    comparable: pl.DataFrame, attempts: pl.LazyFrame, more: tuple[str, ...] = ()
) -> pl.LazyFrame:
    """The last ok attempts of every sweep with the facts of a comparable cell, and `identity`."""
    # A later sweep may have another runtime; facts that change a figure's meaning must be equal.
    same = ("model", "platform_key", *_SAME_METHOD, *IDENTITY, *more)
    cells = comparable.lazy().select("identity", *same)
    return _publications(last_attempts(attempts)).join(cells, on=same, nulls_equal=True)


def _medians(every: pl.LazyFrame, layer: str) -> pl.LazyFrame:
    return every.group_by("identity", "platform_key", layer).agg(
        pl.len().alias("n_repeats"), *(pl.col(name).median() for name in MEASURED)
    )


def _publications(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Rows in which each published figure occurs once, with all rows that have no source.

    A job that several releases of a source carry counts in the first. A file that was imported
    again, for example with facts about its models or under another name, counts as it was imported
    last. Other files of a release are further measurements, as other releases are.
    """
    job = pl.col("runtime_settings").str.json_path_match("$.job_id")
    named = pl.col("source_ref").str.split("; ").list.first()
    file = pl.coalesce(named.str.extract(r"sha256:([0-9a-f]{64})$"), named)
    is_published = pl.col("source").is_not_null()
    sweep = pl.col("sweep_id")
    return (
        rows.with_columns(pl.when(is_published).then(job).alias("job"))
        .with_columns(pl.when(is_published & pl.col("job").is_null()).then(file).alias("file"))
        .filter(
            pl.col("job").is_null() | (sweep == sweep.min().over("source", "job")),
            pl.col("file").is_null()
            | (sweep == sweep.max().over("source", "file", "platform_key", "model")),
        )
        .drop("job", "file")
    )


def _cube(rows: pl.LazyFrame, panel: Panel, layer: pl.Expr) -> Floats:
    """Values of the rows, (3, n_models, n_platforms, n_layers); `layer` counts from 0."""
    placed = rows.select(
        "identity",
        "platform_key",
        layer.alias("layer"),
        *(pl.col(name).cast(pl.Float64) for name in MEASURED),
    ).collect()
    at = (
        positions(panel.models, placed["identity"]),
        positions(panel.keys, placed["platform_key"]),
        placed["layer"].cast(pl.Int64).to_numpy(),
    )
    shape = (len(panel.models), len(panel.keys), int(at[2].max(initial=0)) + 1)
    cube = np.full((len(MEASURED), *shape), np.nan)
    for number, name in enumerate(MEASURED):
        cube[number][at] = placed[name].to_numpy()
    return np.where(cube > 0, cube, np.nan)
