"""Parts `memory` and `files`: weights, state and the rest of the peak, and files by format."""

import polars as pl

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.columns import FORMATS
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.foundation.units import BYTES_PER_MIB
from fleetrank.foundation.vocabulary import WEIGHT_BYTES


def memory_table(session: Session) -> Table:
    """The parts of the peak of each model on each platform."""
    scope = session.cells
    metrics = ", ".join(scope.cells["memory_metric"].drop_nulls().unique().sort())
    note = f"Memory metric: {metrics or 'none'}; compare only figures of one metric."
    return Table(
        title="Memory, split",
        frame=_parts(_with_weights(scope.cells)),
        notes=(*scope.notes, note),
        explanation=explained("scaling/memory"),
    )


def files_table(session: Session) -> Table:
    """The sizes of exported files by model and format."""
    scope = session.cells
    return Table(
        title="Sizes of exported files",
        frame=_files(_with_weights(scope.cells)),
        notes=scope.notes,
        explanation=explained("scaling/files"),
    )


def _with_weights(cells: pl.DataFrame) -> pl.DataFrame:
    return cells.with_columns(_weights().alias("weights"))


def _weights() -> pl.Expr:
    bytes_each = pl.col("precision").replace_strict(
        dict(WEIGHT_BYTES), default=None, return_dtype=pl.Float64
    )
    return pl.coalesce(pl.col("weight_bytes").cast(pl.Float64), pl.col("parameters") * bytes_each)


def _parts(cells: pl.DataFrame) -> pl.DataFrame:
    peak = pl.col("peak_memory_bytes")
    parts = pl.col("weights") + pl.col("state_bytes").fill_null(0)
    is_below = peak < parts
    reason = (
        pl.when(peak.is_null())
        .then(pl.lit("the tool gives no memory figure"))
        .when(pl.col("weights").is_null())
        .then(pl.lit("number of parameters not known"))
        .when(is_below)
        .then(pl.lit("the peak is below weights and state"))
    )
    shown = {
        "weights_mib": pl.col("weights"),
        "state_mib": pl.col("state_bytes"),
        "rest_mib": pl.when(~is_below).then(peak - parts),
        "peak_memory_mib": peak,
        "load_peak_memory_mib": pl.col("load_peak_memory_bytes"),
        "reserved_mib": pl.col("reserved_memory_bytes"),
        "process_mib": pl.col("process_memory_bytes"),
        "file_mib": pl.col("artifact_bytes"),
    }
    return cells.select(
        "model", "platform_key",
        *((one / BYTES_PER_MIB).alias(name) for name, one in shown.items()),
        pl.col("artifact_format").alias("file_format"),
        "memory_metric", "n_repeats", reason.alias("reason"),
    )  # fmt: skip


def _files(cells: pl.DataFrame) -> pl.DataFrame:
    place = ("model", "precision", "workload")
    size = pl.col("artifact_bytes").cast(pl.Float64) / BYTES_PER_MIB
    return (
        cells.group_by(place)
        .agg(
            (pl.col("weights").median() / BYTES_PER_MIB).alias("weights_mib"),
            *(
                size.filter(pl.col("artifact_format") == name).median().alias(f"{name}_mib")
                for name in FORMATS
            ),
        )
        .sort(place)
    )
