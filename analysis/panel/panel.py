"""Converts rows to arrays: one row per model, one column per platform, sorted by name."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.stored.scope import EQUAL_INSIDE_PLATFORM, Scope, comparable_cells

PLATFORM_FACTS = (
    "device", "device_model", "tier", "runtime", "backend", "mode", "precision", "batch", "threads",
    "affinity", "axes", "border", *EQUAL_INSIDE_PLATFORM,
)  # fmt: skip
LATENCY, FRM = "latency", "frm"
"""Names of the two measures that `measures` gives; tables show them, and seeds contain them."""
_DECIMALS = 9
"""Of the logarithm of a product: no measurement separates values that differ by less."""
FRM_WITHOUT_MEMORY = "frm_without_memory"
"""FRM's name where no row has a memory: the ratios of FLOPs and latency."""


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
        """What ranks the models; logarithms, so that products neither overflow nor lose digits.

        Equal products of unequal factors tie: sums of logarithms differ by rounding only.
        """
        rest = np.log(self.rest)
        values = rest + np.log(self.latency)
        return np.where(rest == 0, values, np.round(values, _DECIMALS))


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


def has_memory(panel: Panel) -> bool:
    """Whether any value has a memory above 0; FRM is without memory otherwise."""
    return bool((panel.memory > 0).any())


def measures(panel: Panel, *, with_memory: bool | None = None) -> tuple[Measure, Measure]:
    """Latency alone and FRM, in this order; a value of 0 or less has no ratio and is missing.

    `with_memory` says whether memory is a part of FRM; `None` means if the panel has any.
    """
    latency = _positive(panel.latency)
    flops = _positive(panel.flops)
    is_whole = has_memory(panel) if with_memory is None else with_memory
    memory = _positive(panel.memory) if is_whole else np.ones_like(latency)
    name = FRM if is_whole else FRM_WITHOUT_MEMORY
    return (
        Measure(name=LATENCY, rest=np.ones_like(latency), latency=latency, flops=flops),
        Measure(name=name, rest=memory * flops[:, None], latency=latency, flops=flops),
    )


def components(panel: Panel) -> dict[str, Floats]:
    """FLOPs, latency and memory, (n_models, n_platforms) each; NaN where not above 0."""
    flops = np.broadcast_to(_positive(panel.flops)[:, None], panel.latency.shape)
    return {
        "flops": flops, "latency": _positive(panel.latency), "memory": _positive(panel.memory)
    }  # fmt: skip


def incomplete_notes(panel: Panel, used: Sequence[str] = ("flops", "memory")) -> tuple[str, ...]:
    """How many (model, platform) lack a component that FRM uses, by component.

    Where no row has a memory, that FRM is without it.
    """
    measured = np.isfinite(panel.latency)
    names = {"flops": "FLOPs above 0", "memory": "a peak memory above 0"}
    lacking = {
        names[name]: np.isnan(values) & measured
        for name, values in components(panel).items()
        if name in names and name in used
    }
    dropped = [
        f"Dropped from FRM: {int(mask.sum())} of {int(measured.sum())} values without {what}."
        for what, mask in lacking.items()
        if mask.any()
    ]
    if has_memory(panel):
        return tuple(dropped)
    without = f"No row has a memory: FRM is of FLOPs and latency here ({FRM_WITHOUT_MEMORY})."
    return (*(one for one in dropped if names["memory"] not in one), without)


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
