"""The dossiers of a device, a model and a sweep: which tables and figures each shows."""

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
from fleetrank.analysis.stored.cells_table import cell_values, placement
from fleetrank.analysis.stored.exclusions import exclusion_notes
from fleetrank.analysis.stored.latency_statistic import STATISTIC
from fleetrank.analysis.tables.table import Table
from fleetrank.foundation.inputs.workload import Workload
from fleetrank.foundation.units import NS_PER_MS

_DEVICE_FACTS = (
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
_MODEL_FACTS = (
    "family", "has_attention", "input_size", "parameters", "macs", "flops", "flops_method",
    "accuracy_top1", "accuracy_source", "weights_kind", "weights_id", "card_sha256",
)  # fmt: skip
_VERSIONS = ("fleetrank_version", "git_commit", "python_version", "exporter_versions", "seed")


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
            Table(title="Facts", frame=newest_facts(known, _DEVICE_FACTS), notes=notes),
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
            pl.col(STATISTIC).drop_nulls().unique().sort(),
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
        "workload",
        "platform_key",
        "n_repeats",
        (pl.col("latency_ns") / NS_PER_MS).alias("latency_ms"),
        STATISTIC,
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


def model_dossier(frame: pl.LazyFrame, model: str) -> Dossier:
    """Facts and figures of a model, from all attempts of any origin.

    Raises:
        NoDataError: no attempt has this model.
    """
    known = rows_about(frame, "model", model)
    rows, notes = counted(known)
    return Dossier(
        tables=(
            Table(title="Facts", frame=newest_facts(_alone_last(known), _MODEL_FACTS), notes=notes),
            _values(rows),
            _artifacts(rows),
            failures_table(rows),
        )
    )


def _alone_last(rows: pl.DataFrame) -> pl.DataFrame:
    """With the rows last that state the size of the model alone: without a memory beside it."""
    names = rows["workload"].drop_nulls().unique()
    others = [name for name in names if not Workload.parse(name).has_model_alone]
    return rows.sort(~pl.col("workload").is_in(others).fill_null(value=False), maintain_order=True)


def _values(rows: pl.DataFrame) -> Table:
    cells = cell_values(rows.lazy())
    ms = {
        "latency_ms": "latency_ns",
        "latency_low_ms": "latency_low_ns",
        "latency_high_ms": "latency_high_ns",
        "latency_p99_ms": "latency_p99_ns",
    }
    frame = cells.select(
        "workload",
        "platform_key",
        "device",
        "tier",
        "origin",
        "n_repeats",
        *((pl.col(source) / NS_PER_MS).alias(name) for name, source in ms.items()),
        STATISTIC,
        placement(),
        "peak_memory_bytes",
        "memory_metric",
        "flags",
        "sweep_id",
    ).sort("latency_ms", nulls_last=True)
    return Table(
        title="Latency and memory",
        frame=frame.head(MAX_ROWS),
        notes=(
            "latency: median over repeats of the statistic of each process, with its "
            "order-statistic interval from 5 repeats on. Only the newest sweep of each platform "
            "is used.",
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


def sweep_dossier(frame: pl.LazyFrame, sweep: str) -> Dossier:
    """The facts from the published rows of a sweep, including rows excluded by hand.

    Raises:
        NoDataError: the sweep has no published rows.
    """
    rows = rows_about(frame, "sweep_id", sweep)
    return Dossier(
        tables=(_devices(rows), _failure_kinds(rows), failures_table(rows), _versions(rows))
    )


def _devices(rows: pl.DataFrame) -> Table:
    is_ok = pl.col("status") == "ok"
    frame = (
        rows.group_by("device", "origin")
        .agg(
            pl.col("platform_key").n_unique().alias("n_platforms"),
            pl.col("model").n_unique().alias("n_models"),
            pl.len().alias("n_attempts"),
            is_ok.sum().alias("n_ok"),
            (~is_ok).sum().alias("n_failed"),
            pl.col("flags").explode().drop_nulls().unique().sort(),
            pl.col("started_utc").min().alias("first_utc"),
            pl.col("finished_utc").max().alias("last_utc"),
        )
        .sort("device")
    )
    return Table(title="Devices", frame=frame, notes=exclusion_notes(rows.lazy()))


def _failure_kinds(rows: pl.DataFrame) -> Table:
    frame = (
        rows.filter(pl.col("status") != "ok")
        .group_by("error_kind", "error_stage")
        .agg(
            pl.len().alias("n_attempts"),
            pl.col("model").n_unique().alias("n_models"),
            pl.col("device").n_unique().alias("n_devices"),
        )
        .sort("n_attempts", "error_kind", "error_stage", descending=[True, False, False])
    )
    return Table(title="Failures by kind", frame=frame)


def _versions(rows: pl.DataFrame) -> Table:
    named = rows.select("runtime", "runtime_version").drop_nulls().unique().sort(pl.all())
    pairs = [{"what": runtime, "version": version} for runtime, version in named.iter_rows()]
    for name in _VERSIONS:
        pairs += [
            {"what": name, "version": str(value)}
            for value in rows[name].drop_nulls().unique().sort()
        ]
    frame = pl.DataFrame(pairs, schema={"what": pl.String, "version": pl.String})
    return Table(title="Versions of the rows", frame=frame.head(MAX_ROWS))
