"""Table `memory`: what the peak holds (weights, state, the rest), and files by their format."""

from collections.abc import Mapping
from types import MappingProxyType

import polars as pl

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.columns import FORMATS
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.table_settings import FILES
from fleetrank.foundation.units import BYTES_PER_MIB

WEIGHT_BYTES: Mapping[str, float] = MappingProxyType(
    {"fp64": 8.0, "fp32": 4.0, "fp16": 2.0, "bf16": 2.0, "int8": 1.0, "int4": 0.5}
)
"""Bytes of one weight; scales of quantised weights come on top."""

_PARTS = (
    "weights_mib: bytes of a language model's weights, shared ones once; of other models parameters"
    " x bytes of the precision. state_mib: the cache of all sequences; empty for models without "
    "one. Both are counted, not measured."
)
_REST = (
    "rest_mib = peak_memory_mib - weights_mib - state_mib: activations, workspace, and whatever the"
    " runtime keeps, such as a second copy of packed weights. Empty where the parts are larger than"
    " the peak: weights that are read from a mapped file, or a sensor that misses some memory."
)
_PEAKS = (
    "peak_memory_mib: while running; load_peak_memory_mib: while loading and in the first "
    "inference; both above the baseline of a warm process, medians over repeats. memory_metric "
    "says what they count: compare only figures of one metric and one runtime. reserved_mib: what "
    "PyTorch's allocator reserved on a GPU; process_mib: the process on the GPU, with its context."
)
_FILES = (
    "One row for each model, precision and workload: the size of its exported file in each "
    "format, weights included; the median if there are files for several batches. weights_mib as "
    "in part=peaks."
)


def memory_table(session: Session) -> Table:
    """The parts of the peak of each model on each platform, or the sizes of exported files."""
    scope = session.cells
    cells = scope.cells.with_columns(_weights().alias("weights"))
    if FILES.chosen(session.selection) == "files":
        frame = _files(cells)
        return Table(
            title="Sizes of exported files", frame=frame, notes=scope.notes, explanation=(_FILES,)
        )
    metrics = ", ".join(scope.cells["memory_metric"].drop_nulls().unique().sort())
    note = f"Memory metric: {metrics or 'none'}; compare only figures of one metric."
    return Table(
        title="Memory, split",
        frame=_parts(cells),
        notes=(*scope.notes, note),
        explanation=(_PARTS, _REST, _PEAKS),
    )


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
