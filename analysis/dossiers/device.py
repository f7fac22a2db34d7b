"""One device: its facts, its conditions over time, and its repeatability."""

import polars as pl

from fleetrank.analysis.dossiers.dossier import (
    MAX_ROWS,
    Dossier,
    counted,
    failures_table,
    newest_facts,
    rows_about,
    series_of,
)
from fleetrank.analysis.stored.cells_table import cell_values
from fleetrank.analysis.stored.columns import NS_PER_MS
from fleetrank.analysis.tables.table import Table

_FACTS = (
    "device_model", "tier", "origin", "host", "os", "arch", "cpu_model", "logical_cores",
    "physical_cores", "memory_bytes", "is_virtual_machine", "clock_max_mhz", "governor",
)  # fmt: skip
_CONDITIONS = (
    ("temp_c_before", "Temperature before each repeat", "\N{DEGREE SIGN}C"),
    ("clock_mhz_before", "Clock before each repeat", "MHz"),
    ("clock_cap_mhz_before", "Highest clock allowed", "MHz"),
    ("thermal_status_before", "Thermal status, 0 none to 6 shutdown", ""),
    ("busy_share_before", "Share of core time used by others", ""),
    ("steal_share_before", "Share of core time taken by the hypervisor", ""),
    ("battery_percent_before", "Battery", "%"),
    ("available_memory_bytes_before", "Memory available", "bytes"),
)
_CANARY = "canary_ns_before"


def device_dossier(frame: pl.LazyFrame, device: str) -> Dossier:
    """Facts and figures of a device, from all attempts of any origin.

    Raises:
        NoDataError: no attempt has this device.
    """
    known = rows_about(frame, "device", device)
    rows, notes = counted(known)
    canary = rows.with_columns(pl.col(_CANARY) / NS_PER_MS)
    series = (
        series_of(canary, _CANARY, "Canary model", "ms"),
        *(series_of(rows, column, title, unit) for column, title, unit in _CONDITIONS),
    )
    return Dossier(
        tables=(
            Table(title="Facts", frame=newest_facts(known, _FACTS), notes=notes),
            _platforms(rows),
            _repeatability(rows),
            *_canary_drift(canary),
            failures_table(rows),
        ),
        series=tuple(one for one in series if one.points),
    )


def _platforms(rows: pl.DataFrame) -> Table:
    frame = (
        rows.group_by("platform_key")
        .agg(
            pl.col("model").n_unique().alias("n_models"),
            pl.len().alias("n_attempts"),
            (pl.col("status") == "ok").sum().alias("n_ok"),
            pl.col("runtime_version").drop_nulls().last(),
            pl.col("flags").explode().drop_nulls().unique().sort(),
            pl.col("started_utc").max().alias("last_utc"),
        )
        .sort("platform_key")
    )
    return Table(title="Platforms", frame=frame)


def _repeatability(rows: pl.DataFrame) -> Table:
    cells = cell_values(rows.lazy())
    frame = cells.select(
        "model",
        "platform_key",
        "n_repeats",
        (pl.col("latency_ns") / NS_PER_MS).alias("latency_ms"),
        (100 * pl.col("repeats_spread")).alias("repeats_spread_percent"),
        "flags",
    ).sort("repeats_spread_percent", descending=True, nulls_last=True)
    return Table(
        title="Repeatability",
        frame=frame.head(MAX_ROWS),
        notes=(
            "repeats_spread: range of the medians of fresh processes divided by their median; "
            "the least repeatable cells come first.",
        ),
    )


def _canary_drift(rows: pl.DataFrame) -> tuple[Table, ...]:
    known = rows.drop_nulls(_CANARY)
    if known.is_empty():
        return ()
    frame = (
        known.group_by("sweep_id", maintain_order=True)
        .agg(
            pl.len().alias("n_runs"),
            pl.col(_CANARY).first().alias("first_ms"),
            pl.col(_CANARY).median().alias("median_ms"),
            pl.col(_CANARY).last().alias("last_ms"),
            (100 * (pl.col(_CANARY).last() / pl.col(_CANARY).first() - 1)).alias("drift_percent"),
        )
        .reverse()
    )
    note = (
        "drift: last run of the canary model in a sweep divided by the first; it shows whether "
        "the device changed."
    )
    return (Table(title="Canary drift", frame=frame, notes=(note,)),)
