"""One model: its facts, and its figures on every platform."""

import polars as pl

from fleetrank.analysis.dossiers.dossier import (
    MAX_ROWS,
    Dossier,
    counted,
    failures_table,
    newest_facts,
    rows_about,
)
from fleetrank.analysis.stored.cells_table import cell_values
from fleetrank.analysis.stored.columns import NS_PER_MS
from fleetrank.analysis.tables.table import Table

_FACTS = (
    "family", "has_attention", "input_size", "parameters", "macs", "flops", "flops_method",
    "accuracy_top1", "accuracy_source", "weights_kind", "weights_id", "card_sha256",
)  # fmt: skip


def model_dossier(frame: pl.LazyFrame, model: str) -> Dossier:
    """Facts and figures of a model, from all attempts of any origin.

    Raises:
        NoDataError: no attempt has this model.
    """
    known = rows_about(frame, "model", model)
    rows, notes = counted(known)
    return Dossier(
        tables=(
            Table(title="Facts", frame=newest_facts(known, _FACTS), notes=notes),
            _values(rows),
            _artifacts(rows),
            failures_table(rows),
        )
    )


def _values(rows: pl.DataFrame) -> Table:
    cells = cell_values(rows.lazy())
    ms = {
        "latency_ms": "latency_ns",
        "latency_low_ms": "latency_low_ns",
        "latency_high_ms": "latency_high_ns",
        "latency_p99_ms": "latency_p99_ns",
    }
    frame = cells.select(
        "platform_key",
        "device",
        "tier",
        "origin",
        "n_repeats",
        *((pl.col(source) / NS_PER_MS).alias(name) for name, source in ms.items()),
        "peak_memory_bytes",
        "memory_metric",
        "flags",
        "sweep_id",
    ).sort("latency_ms", nulls_last=True)
    return Table(
        title="Latency and memory",
        frame=frame.head(MAX_ROWS),
        notes=(
            "latency: median over repeats of the process medians, with its order-statistic "
            "interval from 5 repeats on. Only the newest sweep of each platform is used.",
        ),
    )


def _artifacts(rows: pl.DataFrame) -> Table:
    frame = (
        rows.drop_nulls("artifact_sha256")
        .group_by("artifact_format", "artifact_sha256", maintain_order=True)
        .agg(
            pl.col("artifact_bytes").last(),
            pl.col("artifact_max_relative_error").last(),
            pl.col("exporter_versions").last(),
            pl.col("started_utc").max().alias("last_utc"),
        )
        .reverse()
    )
    return Table(title="Exported files", frame=frame.head(MAX_ROWS))
