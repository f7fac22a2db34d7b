"""Converts rows to arrays: one row per model, one column per platform, sorted by name."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.arrays.reliability import MIN_REPEATS_TO_SPLIT
from fleetrank.analysis.stored.load import last_attempts, valid_attempts
from fleetrank.analysis.stored.scope import EQUAL_INSIDE_PLATFORM, IDENTITY, Scope, comparable_cells
from fleetrank.analysis.stored.selection import STATISTIC

PLATFORM_FACTS = (
    "device", "device_model", "tier", "runtime", "backend", "mode", "precision", "batch", "threads",
    "affinity", "axes", "border", *EQUAL_INSIDE_PLATFORM,
)  # fmt: skip
LATENCY, FRM = "latency", "frm"
"""Names of the two measures that `measures` gives; tables show them, and seeds contain them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Measured values as arrays; NaN means missing and is masked before any statistic.

    Attributes:
        models: names, (n_models,).
        platforms: one row per platform with `platform_key` and `PLATFORM_FACTS`.
        latency, memory, energy: (n_models, n_platforms).
        flops, accuracy, weight_bytes: (n_models,); bytes are NaN for models of images.
        families: family of each model, `None` where it is not stated, (n_models,).
        notes: facts that the reader of any table from this panel must know.
        allows_unlike_batch: tiers are compared over platforms of different batches too.
    """

    models: tuple[str, ...]
    platforms: pl.DataFrame
    latency: Floats
    memory: Floats
    energy: Floats
    flops: Floats
    accuracy: Floats
    weight_bytes: Floats
    families: tuple[str | None, ...]
    notes: tuple[str, ...]
    allows_unlike_batch: bool = False

    @property
    def keys(self) -> list[str]:
        """The platform keys in column order."""
        return self.platforms["platform_key"].to_list()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A measure that ranks models: rest x latency, (n_models, n_platforms) each, NaN missing.

    Attributes:
        rest: the part that is kept when latencies are permuted; ones for latency alone.
        latency: ones if the measure has no latency.
        given: (n_models,) or `None`; the part that its ranks explain is removed from this measure's
            ranks, so that correlations are partial.
        has_latency: without it nothing can be permuted, so the null is undefined.
        flops: (n_models,), NaN where unknown, for the null in which only FLOPs transfer; `None`
            leaves out that null.
    """

    name: str
    rest: Floats
    latency: Floats
    given: Floats | None = None
    has_latency: bool = True
    flops: Floats | None = None

    @property
    def values(self) -> Floats:
        """What ranks the models; logarithms, so that products neither overflow nor lose digits."""
        values: Floats = np.log(self.rest) + np.log(self.latency)
        return values


def comparable_scope(scope: Scope) -> Scope:
    """Selected cells that can be ranked, with `identity`, and the notes of every table.

    Raises:
        NotComparableError: no platform holds comparable rows.
    """
    cells, notes = comparable_cells(scope.cells)
    return Scope(cells=cells, notes=(*scope.notes, *notes))


def panel_of(scope: Scope, *, allows_unlike_batch: bool = False) -> Panel:
    """The arrays of `comparable_scope`."""
    cells = scope.cells
    models = cells["identity"].unique().sort()
    platforms = (
        cells.group_by("platform_key")
        .agg(pl.col(name).drop_nulls().sort().first() for name in PLATFORM_FACTS)
        .sort("platform_key")
    )
    row = positions(models, cells["identity"])
    column = positions(platforms["platform_key"], cells["platform_key"])

    def matrix(name: str) -> Floats:
        found = np.full((row.max() + 1, column.max() + 1), np.nan)
        found[row, column] = cells[name].cast(pl.Float64).to_numpy()
        return found

    return Panel(
        models=tuple(models),
        platforms=platforms,
        latency=matrix("latency_ns"),
        memory=matrix("peak_memory_bytes"),
        energy=matrix("energy_mj"),
        flops=_numbers(cells, "flops", models),
        accuracy=_numbers(cells, "accuracy_top1", models),
        weight_bytes=_numbers(cells, "weight_bytes", models),
        families=tuple(_per_model(cells, "family", models)),
        notes=(*scope.notes, *_batch_note(platforms)) if allows_unlike_batch else scope.notes,
        allows_unlike_batch=allows_unlike_batch,
    )


def _batch_note(platforms: pl.DataFrame) -> tuple[str, ...]:
    """A warning, if platforms of unlike batch are compared."""
    by_tier = (
        platforms.drop_nulls("batch")
        .group_by("tier")
        .agg(pl.col("batch").unique().sort())
        .sort("tier")
    )
    if by_tier["batch"].explode().n_unique() < 2:
        return ()
    listed = "; ".join(
        f"{tier} {', '.join(map(str, batches))}" for tier, batches in by_tier.iter_rows()
    )
    return (
        f"UNLIKE BATCHES are compared, as asked (batch of each tier: {listed}): a device can rank "
        "models differently at another batch.",
    )


def measures(panel: Panel) -> tuple[Measure, Measure]:
    """Latency alone and FRM, in this order; a value of 0 or less has no ratio and is missing."""
    latency = _positive(panel.latency)
    flops = _positive(panel.flops)
    rest = _positive(panel.memory) * flops[:, None]
    return (
        Measure(name=LATENCY, rest=np.ones_like(latency), latency=latency, flops=flops),
        Measure(name=FRM, rest=rest, latency=latency, flops=flops),
    )


def components(panel: Panel) -> dict[str, Floats]:
    """FLOPs, latency and memory, (n_models, n_platforms) each; NaN where not above 0."""
    flops = np.broadcast_to(_positive(panel.flops)[:, None], panel.latency.shape)
    return {
        "flops": flops, "latency": _positive(panel.latency), "memory": _positive(panel.memory)
    }  # fmt: skip


def incomplete_notes(panel: Panel, used: Sequence[str] = ("flops", "memory")) -> tuple[str, ...]:
    """How many (model, platform) lack a component that FRM uses, by component."""
    measured = np.isfinite(panel.latency)
    names = {"flops": "FLOPs above 0", "memory": "a peak memory above 0"}
    lacking = {
        names[name]: np.isnan(values) & measured
        for name, values in components(panel).items()
        if name in names and name in used
    }
    return tuple(
        f"Dropped from FRM: {int(mask.sum())} of {int(measured.sum())} values without {what}."
        for what, mask in lacking.items()
        if mask.any()
    )


def _positive(values: Floats) -> Floats:
    return np.where(values > 0, values, np.nan)


def positions(names: Iterable[str], values: pl.Series) -> npt.NDArray[np.int64]:
    """The position of each value among the names."""
    known = pl.Series(names, dtype=values.dtype)
    at = values.replace_strict(known, np.arange(len(known)), return_dtype=pl.Int64)
    return at.to_numpy().astype(np.int64)


def _per_model(cells: pl.DataFrame, name: str, models: pl.Series) -> pl.Series:
    known = cells.group_by("identity").agg(pl.col(name).drop_nulls().sort().first())
    return models.to_frame("identity").join(
        known, on="identity", how="left", maintain_order="left"
    )[name]


def _numbers(cells: pl.DataFrame, name: str, models: pl.Series) -> Floats:
    return _per_model(cells, name, models).cast(pl.Float64).to_numpy().astype(np.float64)


# The single measurements behind a panel: every process, sweep and session.

PAUSE_HOURS = 6
"""A longer pause in a sweep begins another session: the device has cooled down and may have
restarted since. One round of the repeats of a long sweep takes less."""
MEASURED = ("latency_p50_ns", "peak_memory_bytes", "energy_mj")
"""The first axis of `Repeats`."""
_SAME_METHOD = ("memory_metric", "sample_kind", STATISTIC)
"""Facts that change what a figure means: sweeps that differ in one are not repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """The values from which a panel's medians are computed; NaN without a value.

    Attributes:
        processes: latency, run-peak memory and energy of every process of the newest sweep,
            (3, n_models, n_platforms, n_repeats).
        sweeps: their medians in every sweep of the same model and platform, old ones included,
            (3, n_models, n_platforms, n_sweeps). On one platform a layer is one sweep for every
            model, in the order of the sweeps' ids. A job that a publisher repeats in a later
            release is one measurement and stands in its first release only.
        sessions: their medians in every session in which a model has 2 repeats or more,
            (3, n_models, n_platforms, n_sessions); see `processes_of_sessions`.
    """

    processes: Floats
    sweeps: Floats
    sessions: Floats


def repeats_of(panel: Panel, comparable: pl.DataFrame, attempts: pl.LazyFrame) -> Repeats:
    """The single measurements of a panel, from its comparable cells and the selected attempts."""
    key = ("model", "platform_key", "cell_key")
    newest = valid_attempts(attempts).join(comparable.lazy().select(*key, "identity"), on=key)
    sessions = _medians(processes_of_sessions(comparable, attempts), "session")
    repeat = pl.int_range(pl.len()).over("identity", "platform_key", order_by="repeat")
    sweep = pl.col("sweep_id").rank("dense").over("platform_key") - 1
    known = sessions.filter(pl.col("n_repeats") >= MIN_REPEATS_TO_SPLIT)
    return Repeats(
        processes=_cube(newest, panel, repeat),
        sweeps=_cube(_medians(alike_attempts(comparable, attempts), "sweep_id"), panel, sweep),
        sessions=_cube(known, panel, pl.col("session")),
    )


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
