"""Turns a measurement into a row of the table; the summaries are calculated only here."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fleetrank.analysis.stored.columns import SCHEMA, SCHEMA_VERSION
from fleetrank.device_agents.contract.device_facts import DeviceFacts
from fleetrank.device_agents.contract.measurement import (
    Conditions,
    Energy,
    Measurement,
    ToolSummary,
    WorkerFacts,
)
from fleetrank.device_agents.timing.host_overhead import host_overhead_ns
from fleetrank.foundation.vocabulary import Flag
from fleetrank.models.cards.card import Artifact
from fleetrank.orchestrator.identity.cells import Attempt, DevicePlace, SweepFacts
from fleetrank.orchestrator.rows.settled_columns import (
    cpu_numbers,
    device_columns,
    model_columns,
    options_text,
    platform_columns,
    storable,
)

Row = dict[str, object]
"""One row of `analysis.stored.columns.SCHEMA`, as JSON can carry it: times are ISO 8601 text."""

_SHARES = (0.5, 0.9, 0.95, 0.99)
FloatArray = NDArray[np.float64]
_NOTHING_KNOWN: Row = dict.fromkeys(SCHEMA)
_CONDITIONS = (
    "load_1min", "busy_share", "steal_share", "clock_mhz", "temp_c", "available_memory_bytes",
    "battery_percent", "thermal_status", "clock_cap_mhz", "is_charging", "is_screen_on",
    "canary_ns", "memory_clock_mhz", "power_mw", "throttle_reasons", "throttled_ns",
    "other_processes",
)  # fmt: skip


def make_row(
    *,
    sweep: SweepFacts,
    attempt: Attempt,
    measurement: Measurement,
    place: DevicePlace,
    facts: DeviceFacts | None,
    artifact: Artifact | None,
) -> Row:
    """Makes the complete row of one attempt; unknown values are `None`.

    Args:
        sweep: the facts that all rows of the sweep share.
        attempt: the attempt; the row has the key of its cell.
        measurement: the result of the attempt.
        place: the device that measured it; it may have taken the cell over from another device.
        facts: facts of the device; `None` if it could not be probed.
        artifact: the artifact; `None` if the export failed.
    """
    cell = attempt.repeat.cell
    measured: Row = {
        "sweep_id": sweep.sweep_id,
        "cell_key": cell.cell_key,
        "repeat": attempt.repeat.index,
        "attempt": attempt.number,
        "schema_version": SCHEMA_VERSION,
        "fleetrank_version": sweep.fleetrank_version,
        "git_commit": sweep.git_commit,
        "seed": sweep.seed,
        "device": cell.device,
        "taken_over_by": attempt.taker,
        "host": place.host_hash,
        "origin": measurement.origin.value,
        "platform_key": cell.platform_key,
    }
    measured |= _outcome_columns(measurement) | latency_columns(measurement)
    if attempt.taker is not None:
        measured["flags"] = [*(flag.value for flag in measurement.flags), Flag.TAKEN_OVER.value]
    measured |= _condition_columns(measurement, facts) | _worker_columns(measurement.worker)
    return {
        **_NOTHING_KNOWN,
        **model_columns(cell.export, artifact),
        **platform_columns(cell.execution),
        **device_columns(facts),
        **storable(measured),
    }


def summarise(samples_ns: Sequence[int]) -> dict[str, float | int | None]:
    """Count, percentiles, mean and standard deviation (n - 1) of one process's samples.

    Percentiles interpolate linearly (NumPy's default); everything is `None`
    without samples, the deviation with fewer than two.
    """
    names = ("latency_p50_ns", "latency_p90_ns", "latency_p95_ns", "latency_p99_ns")
    if not samples_ns:
        return dict.fromkeys(("sample_count", *names, "latency_mean_ns", "latency_std_ns"))
    samples = np.sort(np.asarray(samples_ns, dtype=np.float64))
    n = len(samples_ns)
    # NumPy's percentile, mean and std give the same values and take 60 microseconds more.
    mean = float(np.add.reduce(samples)) / n
    squares = float(np.add.reduce(np.square(samples - mean)))
    return {
        "sample_count": n,
        **{name: _percentile(samples, share) for name, share in zip(names, _SHARES, strict=True)},
        "latency_mean_ns": mean,
        "latency_std_ns": math.sqrt(squares / (n - 1)) if n > 1 else None,
    }


def _percentile(ordered: FloatArray, share: float) -> float:
    """Interpolates linearly between the two nearest samples."""
    place = share * (len(ordered) - 1)
    below = int(place)
    low, high = float(ordered[below]), float(ordered[min(below + 1, len(ordered) - 1)])
    return low + (high - low) * (place - below)


def summary_columns(summary: ToolSummary) -> Row:
    """The columns of `summarise`, from a tool's summary if the tool kept no samples."""
    return {
        "sample_count": summary.count,
        "latency_p50_ns": float(summary.median_ns),
        "latency_p90_ns": _as_float(summary.p90_ns),
        "latency_p95_ns": _as_float(summary.p95_ns),
        "latency_p99_ns": _as_float(summary.p99_ns),
        "latency_mean_ns": _as_float(summary.mean_ns),
        "latency_std_ns": _as_float(summary.std_ns),
    }


def _as_float(value: int | None) -> float | None:
    return None if value is None else float(value)


def _outcome_columns(measurement: Measurement) -> Row:
    columns: Row = {
        "status": measurement.status.value,
        "flags": [flag.value for flag in measurement.flags],
        "raw_log": measurement.raw_log,
        "started_utc": measurement.started_utc,
        "finished_utc": measurement.finished_utc,
    }
    if (failure := measurement.failure) is not None:
        columns |= {
            "error_kind": failure.kind.value,
            "error_message": failure.message,
            "error_remedy": failure.remedy,
            "error_stage": failure.stage,
            "error_is_transient": failure.is_transient,
            "exit_code": failure.exit_code,
        }
    return columns


def latency_columns(measurement: Measurement) -> Row:
    """The columns of time, memory and energy."""
    device_samples = measurement.device_samples_ns
    columns: Row = {
        "sample_kind": measurement.sample_kind.value,
        "samples_ns": list(measurement.samples_ns) or None,
        "device_samples_ns": None if device_samples is None else list(device_samples),
        "host_overhead_ns": host_overhead_ns(measurement.samples_ns, device_samples),
        "input_copy_ns": measurement.input_copy_ns,
        **summarise(measurement.samples_ns),
        "load_ns": measurement.load_ns,
        "first_inference_ns": measurement.first_inference_ns,
        "warmup_ns": measurement.warmup_ns,
        "warmup_runs": measurement.warmup_runs,
        "stop_reason": measurement.stop_reason,
        "memory_metric": measurement.memory_metric.value if measurement.memory_metric else None,
        "baseline_memory_bytes": measurement.baseline_memory_bytes,
        "load_peak_memory_bytes": measurement.load_peak_memory_bytes,
        "peak_memory_bytes": measurement.run_peak_memory_bytes,
        "reserved_memory_bytes": measurement.reserved_memory_bytes,
        "process_memory_bytes": measurement.process_memory_bytes,
        **_energy_columns(measurement.energy),
    }
    if not measurement.samples_ns and measurement.summary is not None:
        columns |= summary_columns(measurement.summary)
    return columns


def _energy_columns(energy: Energy | None) -> Row:
    if energy is None:
        return {}
    return {
        "energy_mj": energy.per_inference_mj,
        "energy_above_idle_mj": energy.above_idle_mj,
        "idle_power_mw": energy.idle_power_mw,
        "energy_window_ns": energy.window_ns,
        "energy_runs": energy.runs,
        "energy_counter_steps": energy.counter_steps,
        "energy_method": energy.method.value,
    }


def _condition_columns(measurement: Measurement, facts: DeviceFacts | None) -> Row:
    before, after = measurement.conditions_before, measurement.conditions_after
    columns: Row = {
        f"{name}_{when}": getattr(conditions, name)
        for when, conditions in (("before", before), ("after", after))
        if conditions is not None
        for name in _CONDITIONS
    }
    for name in ("clock_max_mhz", "governor"):
        columns[name] = _first_known(name, before, after, facts)
    return columns


def _first_known(name: str, *sources: Conditions | DeviceFacts | None) -> object:
    values = (getattr(source, name) for source in sources if source is not None)
    return next((value for value in values if value is not None), None)


def _worker_columns(worker: WorkerFacts | None) -> Row:
    if worker is None:
        return {}
    return {
        "runtime_version": worker.runtime_version,
        "python_version": worker.python_version,
        "runtime_settings": options_text(worker.settings),
        "worker_affinity": cpu_numbers(worker.affinity),
        "niceness": worker.niceness,
        "oom_score_adj": worker.oom_score_adj,
        "omp_num_threads": worker.omp_num_threads,
        "involuntary_switches": worker.involuntary_switches,
        "confinement": worker.confinement,
    }
