"""The columns that a measurement gives; the summaries of samples are calculated only here.

`Column.field` in `analysis/stored/columns.py` says where a measurement has a value. What is not
there is calculated here: summaries of the samples, and facts that have several sources.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from itertools import accumulate, pairwise
from statistics import median
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetrank.analysis.stored.columns import COLUMNS, SCHEMA, SCHEMA_VERSION, Column
from fleetrank.analysis.stored.part_list import MEASUREMENTS
from fleetrank.analysis.stored.side_tables import SIDE_TABLES
from fleetrank.device_agents.contract.agent import DeviceFacts
from fleetrank.device_agents.contract.measurement import Measurement, ToolSummary
from fleetrank.device_agents.contract.task import Execution, Options
from fleetrank.device_agents.timing import host_overhead_ns
from fleetrank.foundation.inputs import IMAGE, axes_text
from fleetrank.foundation.vocabulary import Design, Statistic
from fleetrank.models.cards.card import Artifact, Cost, ExportRequest, weights_id
from fleetrank.orchestrator.identity import (
    Attempt,
    DevicePlace,
    SweepFacts,
    affinity_text,
    canonical_json,
    token_costs,
)

Row = dict[str, object]
"""One row of `analysis.stored.columns.SCHEMA`, as JSON can carry it: times are ISO 8601 text."""

_SHARES = (0.5, 0.9, 0.95, 0.99)
_PERCENTILES = ("latency_p50_ns", "latency_p90_ns", "latency_p95_ns", "latency_p99_ns")
SUMMARIES = ("sample_count", *_PERCENTILES, "latency_mean_ns", "latency_std_ns")
"""Columns that are calculated from the samples, or that a tool gives instead of samples."""
FloatArray = NDArray[np.float64]
FROM_SEVERAL = ("clock_max_mhz", "governor")
"""Read before and after the repeat, and once when the device was probed; the first known counts."""


_Convert = Callable[[Any], object]


def _word(value: Enum | None) -> object:
    return None if value is None else value.value


def _list(values: Iterable[object] | None) -> object:
    if values is None:
        return None
    return [value.value if isinstance(value, Enum) else value for value in values]


@functools.lru_cache(maxsize=4096)
def options_text(options: Options) -> str:
    """Options as the table stores them: sorted JSON."""
    return canonical_json(dict(options))


_CONVERT_COLUMN: Mapping[str, _Convert] = {
    "samples_ns": lambda samples: list(samples) or None,
    "packages": lambda packages: list(packages) or None,
    "runtime_settings": options_text,
    "worker_affinity": affinity_text,
}


def _convert(column: Column) -> _Convert | None:
    """How a value is stored; `None` for text and numbers, which are stored as they are."""
    of_type = _list if isinstance(column.dtype, pl.List) else _word if column.values else None
    return _CONVERT_COLUMN.get(column.name, of_type)


_FIELDS = tuple(
    (column.name, *column.field.rpartition(".")[::2], _convert(column))
    for column in COLUMNS
    if column.field is not None
)
_PARTS = tuple(dict.fromkeys(part for _, part, _, _ in _FIELDS))
"""Parts of a measurement that have columns; "" is the measurement itself."""
_PLAIN = {
    part: tuple((name, field) for name, at, field, convert in _FIELDS if at == part and not convert)
    for part in _PARTS
}
_CONVERTED = {
    part: tuple(
        (name, field, convert) for name, at, field, convert in _FIELDS if at == part and convert
    )
    for part in _PARTS
}
_NOTHING_MEASURED: Row = {name: None for name, _, _, _ in _FIELDS}


def measured_columns(measurement: Measurement) -> Row:
    """Every column that a measurement gives, as they are stored; unknown values are `None`."""
    columns = dict(_NOTHING_MEASURED)
    for part in _PARTS:
        source = getattr(measurement, part) if part else measurement
        if source is None:
            continue
        for name, field in _PLAIN[part]:
            columns[name] = getattr(source, field)
        for name, field, convert in _CONVERTED[part]:
            columns[name] = convert(getattr(source, field))
    samples_ns, summary = measurement.samples_ns, measurement.summary
    # What `latency_p50_ns` is; `None` without a latency.
    stated = None if summary is None else summary.statistic
    found = Statistic.MEDIAN if samples_ns else stated
    columns["statistic"] = _word(found)
    columns |= _design(measurement)
    columns["host_overhead_ns"] = host_overhead_ns(samples_ns, measurement.device_samples_ns)
    if samples_ns or summary is None:
        return columns | summarise(samples_ns)
    return columns | _summary_columns(summary)


def _design(measurement: Measurement) -> Row:
    """How the samples lie in time; `None` if a tool or a source gives none."""
    blocks = measurement.blocks
    design = Design.ROUNDS if blocks else Design.ISOLATED if measurement.samples_ns else None
    return {
        "design": _word(design),
        "block_starts_ns": [block.start_ns for block in blocks] or None,
        "block_sample_counts": [block.samples for block in blocks] or None,
        "block_medians_ns": block_medians(measurement) or None,
        "left_out_ns": [ns for block in blocks for ns in block.left_out_ns] or None,
    }


def block_medians(measurement: Measurement) -> list[int]:
    """Median of the samples of each block in whole nanoseconds, as a sample is; may be empty."""
    ends = list(accumulate(block.samples for block in measurement.blocks))
    blocks = (measurement.samples_ns[start:end] for start, end in pairwise((0, *ends)))
    return [round(median(block)) for block in blocks]


def condition_columns(measurement: Measurement, facts: DeviceFacts | None) -> Row:
    """The columns that several sources may give; `facts` is `None` if the device did not answer."""
    given = (measurement.conditions_before, measurement.conditions_after, facts)
    sources = [source for source in given if source is not None]
    return {
        name: next((v for source in sources if (v := getattr(source, name)) is not None), None)
        for name in FROM_SEVERAL
    }


def summarise(samples_ns: Sequence[int]) -> dict[str, float | int | None]:
    """Count, percentiles, mean and standard deviation (n - 1) of one process's samples.

    Percentiles interpolate linearly (NumPy's default); everything is `None`
    without samples, the deviation with fewer than two.
    """
    if not samples_ns:
        return dict.fromkeys(SUMMARIES)
    samples = np.sort(np.asarray(samples_ns, dtype=np.float64))
    n = len(samples_ns)
    # NumPy's percentile, mean and std give the same values and take 60 microseconds more.
    mean = float(np.add.reduce(samples)) / n
    squares = float(np.add.reduce(np.square(samples - mean)))
    percentiles = (_percentile(samples, share) for share in _SHARES)
    return {
        "sample_count": n,
        **dict(zip(_PERCENTILES, percentiles, strict=True)),
        "latency_mean_ns": mean,
        "latency_std_ns": math.sqrt(squares / (n - 1)) if n > 1 else None,
    }


def _percentile(ordered: FloatArray, share: float) -> float:
    """Interpolates linearly between the two nearest samples."""
    place = share * (len(ordered) - 1)
    below = int(place)
    low, high = float(ordered[below]), float(ordered[min(below + 1, len(ordered) - 1)])
    return low + (high - low) * (place - below)


def _summary_columns(summary: ToolSummary) -> Row:
    """The columns of `summarise`, from a tool's summary if the tool kept no samples."""
    times_ns = (
        summary.latency_ns, summary.p90_ns, summary.p95_ns, summary.p99_ns, summary.mean_ns,
        summary.std_ns,
    )  # fmt: skip
    values = (None if time_ns is None else float(time_ns) for time_ns in times_ns)
    return dict(zip(SUMMARIES, (summary.count, *values), strict=True))


# Says whether a row fits the table: one check for rows that are made, and for stored ones.

SCHEMAS: Mapping[str, Mapping[str, pl.DataType]] = {
    MEASUREMENTS: SCHEMA, **{name: table.schema for name, table in SIDE_TABLES.items()}
}  # fmt: skip
"""Every table that is stored: measurements, and the side tables."""

_INTEGERS = range(-(2**63), 2**63)
_SHOWN = 40
"""Most letters of a wrong value in a message."""


def why_misfit(row: Mapping[str, object], table: str = MEASUREMENTS) -> str | None:
    """The first value that its column cannot hold; `None` if the row fits.

    Columns that the table lacks are not stored, so they do not count.
    """
    fits = _FITS[table]
    for name, value in row.items():
        if value is not None and name in fits and not fits[name](value):
            return f"{name} cannot be {_short(value)}"
    return None


def _short(value: object) -> str:
    if isinstance(value, int) and int(value) not in _INTEGERS:
        return f"an integer of {value.bit_length()} bits"
    text = ascii(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _is_integer(value: object) -> bool:
    return type(value) is int and value in _INTEGERS


def _is_number(value: object) -> bool:
    return type(value) is float or _is_integer(value)


def _is_text(value: object) -> bool:
    return type(value) is str


def _is_truth(value: object) -> bool:
    return type(value) is bool


def _is_time(value: object) -> bool:
    try:
        datetime.fromisoformat(str(value)).astimezone(UTC)
    except (ValueError, OverflowError):
        return False
    return True


def _are_integers(value: object) -> bool:
    # Thousands of samples: no call for each.
    return type(value) is list and (
        not value
        or (set(map(type, value)) == {int} and min(value) in _INTEGERS and max(value) in _INTEGERS)
    )


def _are_texts(value: object) -> bool:
    return type(value) is list and set(map(type, value)) <= {str}


_BY_TYPE: Mapping[pl.DataType, Callable[[object], bool]] = {
    pl.Int64(): _is_integer,
    pl.Float64(): _is_number,
    pl.String(): _is_text,
    pl.Boolean(): _is_truth,
    pl.List(pl.Int64): _are_integers,
    pl.List(pl.String): _are_texts,
}
_FITS = {
    table: {name: _BY_TYPE.get(dtype, _is_time) for name, dtype in schema.items()}
    for table, schema in SCHEMAS.items()
}


# Turns a measurement into a row of the table.
#
# Columns that are known before the measurement (model, platform, device) are made once and
# reused, because a sweep has many rows with few different values: callers copy them and never
# change them.

Columns = Mapping[str, object]

_ALWAYS_STORABLE = (type(None), int, bool, list)
_KEPT = 4096
"""Larger than the number of devices, exports or executions of a sweep; a few kB each."""
_NOTHING_KNOWN: Row = dict.fromkeys(SCHEMA)


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

    Raises:
        ValueError: a value does not fit the table, or contradicts another; a kind of device has
            returned what no device gives.
    """
    cell = attempt.repeat.cell
    peaks = place.peaks.get(cell.execution.threads, (None, None))
    measured: Row = {
        **_fields(sweep, "sweep_id", "fleetrank_version", "git_commit", "seed", "stopping_rule"),
        **_fields(cell, "cell_key", "device", "platform_key"),
        "repeat": attempt.repeat.index,
        "attempt": attempt.number,
        "schema_version": SCHEMA_VERSION,
        "taken_over_by": attempt.taker,
        "host": place.host_hash,
        # Measured peaks of so many threads; none where nothing was measured.
        "peak_gflops": peaks[0],
        "peak_gbps": peaks[1],
        **measured_columns(measurement),
        **condition_columns(measurement, facts),
    }
    measured["flags"] = [flag.value for flag in attempt.flags(measurement.flags)]
    row = {
        **_NOTHING_KNOWN,
        **_model_columns(cell.export, artifact),
        **_platform_columns(cell.execution),
        **_cost_columns(cell.export, cell.execution, artifact),
        **_device_columns(facts),
        **_storable_row(measured),
    }
    if (why := why_misfit(row)) is not None:
        raise ValueError(why)
    return row


@functools.lru_cache(maxsize=_KEPT)
def _model_columns(export: ExportRequest, artifact: Artifact | None) -> Columns:
    """Columns of a network and its artifact; `None` values if it has no file."""
    card, weights = export.card, export.weights
    cost = (
        artifact.cost if artifact else Cost(macs=card.macs, parameters=card.parameters, method=None)
    )
    columns: dict[str, object] = {
        "model": card.name,
        "family": card.family.value,
        **_fields(card, "has_attention", "input_size", "accuracy_top1", "accuracy_source"),
        "card_sha256": export.model.sha256,
        "weights_kind": weights.kind.value,
        "weights_id": weights_id(card, weights),
        **_fields(cost, "macs", "flops", "parameters"),
        "flops_method": cost.method.value if cost.method else None,
        "vocabulary": None if card.language is None else card.language.vocabulary,
        "model_context_tokens": None if card.language is None else card.language.context,
        "artifact_format": export.format.value,
    }
    if artifact is not None and artifact.has_file:
        columns |= {
            "artifact_sha256": artifact.sha256,
            "artifact_bytes": artifact.size_bytes,
            "artifact_max_relative_error": artifact.max_relative_error,
            "artifact_snr_db": artifact.snr_db,
            "artifact_top1_agreement": artifact.top1_agreement,
            "recipe": export.recipe,
            "border": artifact.border,
            "border_scales": artifact.border_scales,
            "exporter_versions": canonical_json(dict(artifact.versions)),
        }
    return _storable_row(columns)


@functools.lru_cache(maxsize=_KEPT)
def _platform_columns(execution: Execution) -> Columns:
    """Columns of the execution, without the device."""
    return {
        "runtime": execution.runtime.value,
        "backend": execution.backend,
        "mode": execution.mode.value,
        "precision": execution.precision.value,
        "batch": execution.batch,
        "threads": execution.threads,
        "cpu_choice": execution.cpu_choice and execution.cpu_choice.value,
        "affinity": affinity_text(execution.affinity),
        "options": options_text(execution.options),
        "axes": axes_text(execution.axes),
        **_workload_columns(execution),
    }


def _workload_columns(execution: Execution) -> Columns:
    """Columns of a workload with tokens; none for `image`, which is null in stored rows."""
    workload = execution.workload
    if workload == IMAGE:
        return {}
    return {
        "workload": str(workload),
        "prompt_tokens": workload.prompt_tokens,
        "context_tokens": workload.context_tokens,
        "generated_tokens": workload.generated,
        "tokens_per_inference": workload.tokens_per_sample(execution.batch),
    }


@functools.lru_cache(maxsize=_KEPT)
def _cost_columns(
    export: ExportRequest, execution: Execution, artifact: Artifact | None
) -> Columns:
    """Bytes of one timed sample, which is a step where one run has a prompt and steps."""
    if not (costs := token_costs(export.card.language, execution)):
        return {}
    stored = costs[-1].weight_bytes
    if export.recipe is not None and artifact is not None and artifact.has_file:
        # Some recipes make integers of the tables, too.
        stored = min(stored, artifact.size_bytes)
    return {
        "weight_bytes": stored,
        "state_bytes": costs[-1].state_bytes,
        "bytes_moved": costs[-1].moved_bytes,
    }


@functools.lru_cache(maxsize=_KEPT)
def _device_columns(facts: DeviceFacts | None) -> Columns:
    """Columns of the device; all null if it could not be probed."""
    if facts is None:
        return {}
    columns = {
        **_fields(
            facts,
            "device_model",
            "os",
            "arch",
            "cpu_model",
            "logical_cores",
            "physical_cores",
            "memory_bytes",
            "is_virtual_machine",
        ),
        "tier": facts.tier.value,
        "device_facts": canonical_json(dict(facts.extra)) if facts.extra else None,
    }
    return _storable_row(columns)


def _fields(source: object, *names: str) -> dict[str, object]:
    """Columns that have the names of fields."""
    return {name: getattr(source, name) for name in names}


def _storable_row(columns: Columns) -> dict[str, object]:
    """Returns a value that JSON and Parquet can both hold; NaN and infinity become missing."""
    return {
        name: value if type(value) in _ALWAYS_STORABLE else _storable_value(value)
        for name, value in columns.items()
    }


def _storable_value(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str) and not value.isascii():
        # Half a surrogate pair, as in a device's damaged output, is not valid UTF-8.
        return value.encode("utf-8", "replace").decode()
    return value
