"""The only definition of the columns of the measurements table.

One row is one attempt at one repeat of one cell, failures included; the key is
`(sweep_id, cell_key, repeat, attempt)`. Units are the last part of a name. `null` means not known
or not applicable, never 0. A string column with a closed set of values names it; the sets are
those of `foundation.vocabulary`.

A new measured column is a line here and a field in `device_agents/contract/measurement.py`: rows
take it from there, and a test names the one that is missing.
"""

from dataclasses import dataclass

import polars as pl

from fleetrank.foundation.vocabulary import (
    EnergyMethod,
    ErrorKind,
    Family,
    Flag,
    FlopsMethod,
    Format,
    MemoryMetric,
    Mode,
    Origin,
    Precision,
    Runtime,
    SampleKind,
    Status,
    Tier,
    WeightsKind,
    words_of,
)

NS_PER_MS = 1e6
"""Columns are in nanoseconds; tables show milliseconds."""
SENTINELS = (-1.0, 0.0, float(2**31 - 1), float(2**32 - 1))
"""Codes for 'missing' in published tables, compared exactly: 2,048 MiB is one byte above one."""
ROUNDED_SENTINELS = (float(2**63 - 1), float(2**64 - 1))
"""The same, compared to 9 digits. Seen: -1 in OneProxy, 0 and 2^64-1 in AI Hub."""

SCHEMA_VERSION = 1
"""Increased when a column is removed or changes its meaning; a newer version is an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column.

    Attributes:
        values: the closed set of a string column; `None` where it is open.
        field: where a `Measurement` has the value, such as `failure.kind`; `None` if it comes from
            elsewhere (plan, card, device) or is calculated.
    """

    name: str
    dtype: pl.DataType
    doc: str
    values: tuple[str, ...] | None = None
    field: str | None = None


_STR, _INT, _FLOAT, _BOOL = pl.String(), pl.Int64(), pl.Float64(), pl.Boolean()
_UTC = pl.Datetime("us", "UTC")
_INTS, _STRS = pl.List(pl.Int64), pl.List(pl.String)
_Values = tuple[str, ...] | None

RUNTIMES = words_of(Runtime)
IMPORTED_RUNTIMES = ("qnn",)
"""Runtimes of published measurements only; fleetrank does not run them."""
STORED_RUNTIMES = (*RUNTIMES, *IMPORTED_RUNTIMES)
PRECISIONS = words_of(Precision)
MODES = words_of(Mode)
TIERS = words_of(Tier)
FAMILIES = words_of(Family)
NO_FAMILY = "not stated"
"""Shown in place of a family that a row does not have, such as a published model's."""
ORIGINS = words_of(Origin)
DEFAULT_ORIGINS = ("measured", "imported")
"""Rows from real devices; virtual and simulated rows are used only on request."""
SAMPLE_KINDS = words_of(SampleKind)
STATUSES = words_of(Status)
MEMORY_METRICS = words_of(MemoryMetric)
ERROR_KINDS = words_of(ErrorKind)
FLAGS = words_of(Flag)
ENERGY_METHODS = words_of(EnergyMethod)
FLOPS_METHODS = words_of(FlopsMethod)
WEIGHTS_KINDS = words_of(WeightsKind)
FORMATS = words_of(Format)


def _column(name: str, dtype: pl.DataType, doc: str, values: _Values = None) -> Column:
    return Column(name=name, dtype=dtype, doc=doc, values=values)


def _measured(name: str, dtype: pl.DataType, doc: str, values: _Values = None) -> Column:
    return _at(name, name, dtype, doc, values)


def _at(field: str, name: str, dtype: pl.DataType, doc: str, values: _Values = None) -> Column:
    """In another field, or in a part of the measurement: `part.` is its field of that name."""
    path = f"{field}{name}" if field.endswith(".") else field
    return Column(name=name, dtype=dtype, doc=doc, values=values, field=path)


_IDENTITY = (
    _column("sweep_id", _STR, "the sweep; partition of the Parquet files"),
    _column("cell_key", _STR, "hash of model card, weights, exporter options and platform_key"),
    _column("repeat", _INT, "0-based; each repeat is a fresh process"),
    _column("attempt", _INT, "0-based attempt at this repeat; analysis uses the last ok one"),
    _column("schema_version", _INT, "version of this table"),
    _column("fleetrank_version", _STR, "version that wrote the row"),
    _column(
        "git_commit", _STR, "commit of the workspace, with '-dirty' if changed; null outside git"
    ),
    _column("seed", _INT, "seed of the sweep; the order of cells and the inputs derive from it"),
)
_MODEL = (
    _column("model", _STR, "name of the model card"),
    _column("family", _STR, "architecture family", FAMILIES),
    _column("has_attention", _BOOL, "attention model, for the FLOPs-shift test"),
    _column("card_sha256", _STR, "identity of the model card"),
    _column("weights_kind", _STR, "which weights", WEIGHTS_KINDS),
    _column("weights_id", _STR, "seed, pretrained tag or sha256 of the weights"),
    _column("input_size", _INT, "height = width of the input in pixels"),
    _column("macs", _INT, "multiply-accumulates of one inference at batch 1"),
    _column("flops", _INT, "2 x MACs"),
    _column("flops_method", _STR, "how FLOPs were obtained", FLOPS_METHODS),
    _column("parameters", _INT, "number of parameters"),
    _column("accuracy_top1", _FLOAT, "ImageNet top-1 in per cent, as published"),
    _column("accuracy_source", _STR, "where that accuracy is published"),
    _column("artifact_sha256", _STR, "sha256 of the exported file"),
    _column("artifact_format", _STR, "its format", FORMATS),
    _column("artifact_bytes", _INT, "its size"),
    _column("artifact_max_relative_error", _FLOAT, "max|a-b|/max|a| against PyTorch's output"),
    _column("exporter_versions", _STR, "JSON object, library to version"),
)
_DEVICE = (
    _column("device", _STR, "name of the registered device"),
    _column(
        "taken_over_by",
        _STR,
        "equal device that made the measurement instead; null: the device itself",
    ),
    _column("device_model", _STR, "type of the device; two phones of one model share it"),
    _column("tier", _STR, "class of device", TIERS),
    _measured("origin", _STR, "source of the row", ORIGINS),
    _column("host", _STR, "hash of the host's name"),
    _column("os", _STR, "operating system of the device"),
    _column("arch", _STR, "instruction set"),
    _column("cpu_model", _STR, "name of the CPU in the system"),
    _column("logical_cores", _INT, "logical cores of the device"),
    _column("physical_cores", _INT, "physical cores of the device"),
    _column("memory_bytes", _INT, "memory of the device"),
    _column("is_virtual_machine", _BOOL, "whether the host is virtual"),
    _column("device_facts", _STR, "JSON object of further facts, such as driver and power limit"),
)
_PLATFORM = (
    _column("platform_key", _STR, "device/runtime/backend/mode/precision/b/t/affinity/options"),
    _column("runtime", _STR, "what executed the artifact", STORED_RUNTIMES),
    _column("backend", _STR, "execution provider or delegate"),
    _column("mode", _STR, "how the graph is executed", MODES),
    _column("precision", _STR, "arithmetic of the artifact", PRECISIONS),
    _column("batch", _INT, "samples in one inference"),
    _column("threads", _INT, "threads inside one operator"),
    _column("affinity", _STR, "requested CPU numbers, '0,1'; null if the system chooses"),
    _column("options", _STR, "JSON object of runtime options that differ from the default"),
)
_OUTCOME = (
    _measured("status", _STR, "result of the attempt", STATUSES),
    _at("failure.kind", "error_kind", _STR, "kind of the error", ERROR_KINDS),
    _at("failure.message", "error_message", _STR, "text of the error"),
    _at("failure.remedy", "error_remedy", _STR, "what the user can do about it"),
    _at("failure.stage", "error_stage", _STR, "stage of the attempt that failed"),
    _at("failure.is_transient", "error_is_transient", _BOOL, "whether a retry made sense"),
    _at("failure.", "exit_code", _INT, "exit code of the worker; a negative one is a signal"),
)
_LATENCY = (
    _measured("sample_kind", _STR, "what one sample measures", SAMPLE_KINDS),
    _measured("samples_ns", _INTS, "synchronised wall clock per inference, in order; null if none"),
    _measured("device_samples_ns", _INTS, "the same from the device clock (CUDA events)"),
    _column("host_overhead_ns", _FLOAT, "median of wall clock minus device clock per inference"),
    _measured("input_copy_ns", _INT, "time to copy the inputs to the device; not in the samples"),
    _column("sample_count", _INT, "number of timed inferences"),
    _column("latency_p50_ns", _FLOAT, "median of this process"),
    _column("latency_p90_ns", _FLOAT, "90th percentile of this process"),
    _column("latency_p95_ns", _FLOAT, "95th percentile of this process"),
    _column("latency_p99_ns", _FLOAT, "99th percentile of this process"),
    _column("latency_mean_ns", _FLOAT, "mean of this process"),
    _column("latency_std_ns", _FLOAT, "standard deviation (n - 1) of this process"),
    _measured("load_ns", _INT, "time to read the artifact and create the session"),
    _measured("first_inference_ns", _INT, "time of the first inference after loading"),
    _measured("warmup_ns", _INT, "length of the warm-up"),
    _measured("warmup_runs", _INT, "inferences in the warm-up"),
    _measured("stop_reason", _STR, "half_width, max_time or max_samples"),
)
_MEMORY = (
    _measured("memory_metric", _STR, "what the memory figures count", MEMORY_METRICS),
    _measured("baseline_memory_bytes", _INT, "resident size before loading, with the primer"),
    _measured("load_peak_memory_bytes", _INT, "peak above the baseline until the first output"),
    _at("run_peak_memory_bytes", "peak_memory_bytes", _INT,
        "peak above the baseline while running; used by FRM"),
    _measured("reserved_memory_bytes", _INT, "GPU memory that PyTorch's allocator reserved"),
    _measured("process_memory_bytes", _INT, "GPU memory of the process, with its context"),
    _at("energy.per_inference_mj", "energy_mj", _FLOAT,
        "energy of one inference, including idle power"),
    _at("energy.above_idle_mj", "energy_above_idle_mj", _FLOAT,
        "energy of one inference above idle power"),
    _at("energy.", "idle_power_mw", _FLOAT, "mean power before the model was loaded"),
    _at("energy.window_ns", "energy_window_ns", _INT, "length of the runs repeated for energy"),
    _at("energy.runs", "energy_runs", _INT, "inferences in that window"),
    _at("energy.counter_steps", "energy_counter_steps", _INT,
        "changes of the energy counter in that window"),
    _at("energy.method", "energy_method", _STR, "source of the energy figure", ENERGY_METHODS),
)  # fmt: skip
_CONDITIONS = tuple(
    _at(f"conditions_{when}.{name}", f"{name}_{when}", dtype, f"{doc}, {when} the repeat")
    for when in ("before", "after")
    for name, dtype, doc in (
        ("load_1min", _FLOAT, "load average of one minute"),
        ("busy_share", _FLOAT, "share of core time used by others, 0 to 1"),
        ("steal_share", _FLOAT, "share of core time taken by the hypervisor, 0 to 1"),
        ("clock_mhz", _FLOAT, "mean current clock"),
        ("temp_c", _FLOAT, "hottest sensor"),
        ("available_memory_bytes", _INT, "memory available"),
        ("battery_percent", _FLOAT, "battery level"),
        ("thermal_status", _INT, "Android thermal status, 0 none to 6 shutdown"),
        ("clock_cap_mhz", _FLOAT, "highest clock the cores were allowed"),
        ("is_charging", _BOOL, "whether the battery was charging or full on a charger"),
        ("is_screen_on", _BOOL, "whether the phone was awake"),
        ("canary_ns", _INT, "median of the canary model, where it was run"),
        ("memory_clock_mhz", _FLOAT, "clock of a GPU's memory"),
        ("power_mw", _FLOAT, "power of a GPU"),
        ("throttle_reasons", _STR, "reasons why a GPU is throttled; 'none' if it is not"),
        ("throttled_ns", _INT, "time that a GPU was throttled since its driver was loaded"),
        ("other_processes", _INT, "other processes that use a GPU"),
    )
)
_WORKER = (
    _column("clock_max_mhz", _FLOAT, "highest clock of the device"),
    _column("governor", _STR, "frequency governor"),
    _at("worker.", "runtime_version", _STR, "version of the runtime library"),
    _at("worker.", "python_version", _STR, "version of Python in the worker"),
    _at("worker.settings", "runtime_settings", _STR,
        "JSON object of the settings that the runtime really used"),
    _at("worker.affinity", "worker_affinity", _STR,
        "CPUs the worker could use while timing, '0,1'"),
    _at("worker.", "niceness", _INT, "niceness of the worker"),
    _at("worker.", "oom_score_adj", _INT, "oom_score_adj of the worker"),
    _at("worker.", "omp_num_threads", _STR, "OMP_NUM_THREADS of the worker"),
    _at("worker.", "involuntary_switches", _INT, "involuntary context switches while timing"),
    _at("worker.", "confinement", _STR,
        "sandbox of an untrusted file; null: trusted, older or failed"),
    _measured("flags", _STRS, "quality flags of this row", FLAGS),
    _measured("raw_log", _STR, "path of the stored tool output in the results folder"),
    _measured("started_utc", _UTC, "start of the attempt, or time of the import"),
    _measured("finished_utc", _UTC, "end of the attempt"),
)  # fmt: skip
_SOURCE = (
    _column("source", _STR, "publisher of an imported row"),
    _column("source_ref", _STR, "file and sha256 of its content, or commit"),
    _column("licence", _STR, "licence of the source"),
    _column("derived", _STRS, "converted quantities, each with its conversion"),
    _column("flops_source", _STR, "where FLOPs are published that fleetrank did not count"),
)

COLUMNS: tuple[Column, ...] = (
    *_IDENTITY, *_MODEL, *_DEVICE, *_PLATFORM, *_OUTCOME, *_LATENCY, *_MEMORY, *_CONDITIONS,
    *_WORKER, *_SOURCE,
)  # fmt: skip

SCHEMA: dict[str, pl.DataType] = {column.name: column.dtype for column in COLUMNS}
"""The schema of stored rows."""
EXCLUDED = _column("excluded", _STR, "reason of the exclusion by hand; no figure uses such rows")
READ_COLUMNS: tuple[Column, ...] = (*COLUMNS, EXCLUDED)
READ_SCHEMA: dict[str, pl.DataType] = {column.name: column.dtype for column in READ_COLUMNS}
"""The schema for readers: the last column comes from `results/exclusions.json`."""
ROW_KEY = ("sweep_id", "cell_key", "repeat", "attempt")
