"""NetScore, energy-delay product and roofline bound of every model on every platform."""

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.pareto import Mask
from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats
from fleetrank.analysis.statistics.ranks.composites import energy_delay_mj_ms, netscore, roofline
from fleetrank.analysis.stored.comparable import comparable_cells
from fleetrank.analysis.stored.scope import select_cells
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.table import Table

_WEIGHT_BYTES = {"fp32": 4.0, "fp16": 2.0, "bf16": 2.0, "int8": 1.0}
_FLOPS_PER_MAC = 2.0
_BOUNDS = {
    "bound": pl.String,
    "roofline_share": pl.Float64,
    "flops_per_byte": pl.Float64,
    "peak_gflops_per_s": pl.Float64,
    "peak_gbytes_per_s": pl.Float64,
}
_MEANING = (
    "netscore = 20 log10(accuracy^2 / (parameters^0.5 x MACs^0.5)), accuracy in per cent, "
    "parameters in millions, MACs in billions (Wong 2018); larger is better. It holds nothing that "
    "was measured on the platform, so it is the same everywhere.",
    "edp_mj_ms: energy of one inference times latency (Gonzalez and Horowitz 1996); null without "
    "an energy reading.",
    "bound: compute or memory, by the roofline (Williams et al. 2009); roofline_share: FLOP/s "
    "reached over what the roofline allows at the model's FLOPs per byte. An estimate: the peaks "
    f"are the best FLOP/s and byte/s that any model of the platform reached (at least {MIN_MODELS} "
    "models), so real ones are higher; bytes are those of the parameters, read once, without "
    "activations, so true intensity is lower and 'memory' is called too seldom.",
)


def composites_table(frame: pl.LazyFrame, selection: Selection) -> Table:
    """One row per model and platform; `--source` and `--source-tier` choose platforms."""
    scope = select_cells(frame, selection)
    cells, notes = comparable_cells(scope.cells)
    scored = cells.sort("platform_key", "identity").with_columns(
        work=pl.col("flops") * pl.col("batch").fill_null(1),
        weight_bytes=pl.col("parameters")
        * pl.col("precision").replace_strict(_WEIGHT_BYTES, default=None, return_dtype=pl.Float64),
    )
    platforms = scored.partition_by("platform_key", maintain_order=True)
    bounds = [_bounds(platform) for platform in platforms]
    shown = scored.select(
        pl.col("identity").alias("model"),
        "platform_key",
        pl.Series("netscore", _scores(scored), pl.Float64),
        pl.Series("edp_mj_ms", _products(scored), pl.Float64),
    )
    if bounds:
        shown = shown.hstack(pl.concat(bounds))
    reason = pl.concat_str(
        *(
            pl.when(pl.col(name).is_null()).then(pl.lit(text))
            for name, text in _REASONS.items()
            if name in shown.columns
        ),
        separator="; ",
        ignore_nulls=True,
    )
    return Table(
        title="Composite measures",
        frame=shown.with_columns(pl.when(reason != "").then(reason).alias("reason")),
        notes=(*scope.notes, *notes, *_MEANING),
    )


_REASONS = {
    "netscore": "no NetScore: accuracy, parameters or FLOPs are not known",
    "edp_mj_ms": "no energy reading",
    "bound": f"no roofline: fewer than {MIN_MODELS} models with FLOPs, parameters and latency, or "
    "this one lacks them",
}


def _scores(cells: pl.DataFrame) -> list[float | None]:
    known, (accuracy, parameters, flops) = _positive(cells, "accuracy_top1", "parameters", "flops")
    return _spread(known, netscore(accuracy, parameters, flops / _FLOPS_PER_MAC))


def _products(cells: pl.DataFrame) -> list[float | None]:
    known, (energy, latency) = _positive(cells, "energy_mj", "latency_ns")
    return _spread(known, energy_delay_mj_ms(energy, latency))


def _bounds(cells: pl.DataFrame) -> pl.DataFrame:
    """Roofline columns of one platform, in the order of its rows."""
    known, (work, weight_bytes, latency) = _positive(cells, "work", "weight_bytes", "latency_ns")
    if known.sum() < MIN_MODELS:
        return pl.DataFrame({name: [None] * cells.height for name in _BOUNDS}, schema=_BOUNDS)
    found = roofline(work, weight_bytes, latency)
    bound = np.where(found.is_compute_bound, "compute", "memory").astype(object)
    words = np.full(cells.height, None, dtype=object)
    words[known] = bound
    return pl.DataFrame(
        {
            "bound": words.tolist(),
            "roofline_share": _spread(known, found.share),
            "flops_per_byte": _spread(known, found.intensity_flops_per_byte),
            "peak_gflops_per_s": [found.peak_flops_per_s / 1e9] * cells.height,
            "peak_gbytes_per_s": [found.peak_bytes_per_s / 1e9] * cells.height,
        },
        schema=_BOUNDS,
    )


def _positive(cells: pl.DataFrame, *names: str) -> tuple[Mask, tuple[Floats, ...]]:
    """Where all columns are above 0, and their values there."""
    columns = [cells[name].cast(pl.Float64).to_numpy() for name in names]
    known = np.logical_and.reduce([column > 0 for column in columns])
    return known, tuple(column[known] for column in columns)


def _spread(known: Mask, values: Floats) -> list[float | None]:
    spread = np.full(known.size, None, dtype=object)
    spread[known] = values
    found: list[float | None] = spread.tolist()
    return found
