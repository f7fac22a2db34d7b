"""The table of single cells: latency, memory or cold start."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import polars as pl

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.language.token_figures import MEANINGS
from fleetrank.analysis.stored.cells_table import placement
from fleetrank.analysis.stored.latency_statistic import STATISTIC
from fleetrank.analysis.stored.scope import Scope
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.table_settings import QUANTITY
from fleetrank.foundation.units import BYTES_PER_MIB, NS_PER_MS

_MEDIANS = "Each figure is the median over repeats of the figures of single processes."

_STATISTIC = (
    "statistic: what latency_p50_ms of one process is: the median, unless a source or a tool gives "
    "only a mean or the shortest time. Empty: the source does not state it."
)
_PLACEMENT = (
    "placement: nodes of the graph that ran on the backend, of all its nodes. Empty: not stated."
)


def cells_table(session: Session) -> Table:
    """Latency, peak memory or cold start of each model on each platform."""
    table = _OF_QUANTITY[QUANTITY.chosen(session.selection)](session.cells)
    workload = session.workload
    if workload.kind not in MEANINGS:
        return table
    return replace(
        table,
        title=f"{table.title}, {workload}",
        explanation=(MEANINGS[workload.kind], *table.explanation),
    )


def _latency(scope: Scope) -> Table:
    """p50, p95 and p99, with the interval of the p50 over processes."""
    columns = {
        "latency_p50_ms": "latency_ns",
        "latency_low_ms": "latency_low_ns",
        "latency_high_ms": "latency_high_ns",
        "latency_p95_ms": "latency_p95_ns",
        "latency_p99_ms": "latency_p99_ns",
    }
    shown = scope.cells.select(
        "model", "platform_key", *_scaled(columns, NS_PER_MS),
        "repeats_spread", "n_repeats", "sample_kind", "runtime_version", "flags",
        STATISTIC, placement(),
        pl.col("interval_reason").alias("reason"),
    )  # fmt: skip
    interval = (
        "latency_low_ms to latency_high_ms: interval of the median over processes by order "
        f"statistics, coverage {_coverage(scope.cells)}."
    )
    explanation = (_MEDIANS, _STATISTIC, interval, _PLACEMENT)
    return Table(title="Latency", frame=shown, notes=scope.notes, explanation=explanation)


def _memory(scope: Scope) -> Table:
    """Peaks above the baseline while running and while loading, with their metric."""
    columns = {
        "peak_memory_mib": "peak_memory_bytes",
        "load_peak_memory_mib": "load_peak_memory_bytes",
    }
    reason = pl.when(pl.col("peak_memory_bytes").is_null()).then(
        pl.lit("the tool gives no memory figure")
    )
    shown = scope.cells.select(
        "model", "platform_key", *_scaled(columns, BYTES_PER_MIB),
        "memory_metric", "n_repeats", reason.alias("reason"),
    )  # fmt: skip
    metrics = ", ".join(scope.cells["memory_metric"].drop_nulls().unique().sort())
    metric = (
        f"Memory metric: {metrics or 'none'}; compare only figures of one metric and one runtime."
    )
    return Table(
        title="Peak memory", frame=shown, notes=(*scope.notes, metric), explanation=(_MEDIANS,)
    )


def _coldstart(scope: Scope) -> Table:
    """Load and first inference, and the ratio of the first one to a steady inference."""
    columns = {
        "load_ms": "load_ns",
        "first_inference_ms": "first_inference_ns",
        "latency_p50_ms": "latency_ns",
    }
    has_steady = pl.col("latency_ns") > 0
    ratio = pl.when(has_steady).then(pl.col("first_inference_ns") / pl.col("latency_ns"))
    reason = pl.when(pl.col("load_ns").is_null() | pl.col("first_inference_ns").is_null()).then(
        pl.lit("the tool does not time loading")
    )
    shown = scope.cells.select(
        "model", "platform_key", *_scaled(columns, NS_PER_MS),
        STATISTIC, ratio.alias("first_to_steady"), "n_repeats", reason.alias("reason"),
    )  # fmt: skip
    cache = "The file may be in the page cache: load_ms does not measure a cold disk."
    return Table(
        title="Cold start", frame=shown, notes=(*scope.notes, cache), explanation=(_MEDIANS,)
    )


_OF_QUANTITY: Mapping[str, Callable[[Scope], Table]] = MappingProxyType(
    {"latency": _latency, "memory": _memory, "coldstart": _coldstart}
)


def _scaled(columns: dict[str, str], divisor: float) -> list[pl.Expr]:
    return [(pl.col(source) / divisor).alias(name) for name, source in columns.items()]


def _coverage(cells: pl.DataFrame) -> str:
    known = cells["interval_coverage"].drop_nulls().unique().sort()
    if known.is_empty():
        return "none here"
    ends = sorted({f"{100 * value:.1f} %" for value in (known[0], known[-1])})
    return " to ".join(ends)
