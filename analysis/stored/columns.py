"""The table of measurements: the one definition of its columns.

One row is one attempt at one repeat of one cell, failures included; the key is
`(sweep_id, cell_key, repeat, attempt)`. Units are the last part of a name. `null` means not known
or not applicable, never 0. String columns with a closed set of values list it here; the owners of
those words are other packages, and a test holds both sides together.
"""

from dataclasses import dataclass

import polars as pl

NS_PER_MS = 1e6
"""Columns hold nanoseconds, people read milliseconds."""

SCHEMA_VERSION = 1
"""Raised when a column changes meaning or goes; a reader refuses a newer one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column; `values` is the closed set of a string column, `None` where it is open."""

    name: str
    dtype: pl.DataType
    doc: str
    values: tuple[str, ...] | None = None


_STR, _INT, _FLOAT, _BOOL = pl.String(), pl.Int64(), pl.Float64(), pl.Boolean()
_UTC = pl.Datetime("us", "UTC")
_INTS, _STRS = pl.List(pl.Int64), pl.List(pl.String)

RUNTIMES = ("onnx", "torch", "tflite", "executorch")
IMPORTED_RUNTIMES = ("qnn",)
"""What only published measurements come from: nothing here runs it."""
STORED_RUNTIMES = (*RUNTIMES, *IMPORTED_RUNTIMES)
PRECISIONS = ("fp32", "fp16", "bf16", "int8")
MODES = ("eager", "compile", "graphs")
TIERS = ("gpu", "cpu", "edge")
FAMILIES = ("standard_cnn", "mobile_cnn", "efficient_cnn", "transformer", "hybrid")
ORIGINS = ("measured", "virtual", "simulated", "imported")
SAMPLE_KINDS = ("per_inference", "tool_summary", "throughput_derived", "vendor")
STATUSES = ("ok", "failed")
MEMORY_METRICS = (
    "vmhwm_growth", "maxrss_growth", "cuda_allocated", "cuda_reserved", "nvml_process", "simulated",
    "vendor_estimate",
)  # fmt: skip
ERROR_KINDS = (
    "bad_artifact", "unsupported", "missing_library", "out_of_memory", "crashed", "bad_output",
    "timed_out", "device_lost", "host_lost", "disk_full", "unfit_conditions", "interrupted",
    "export_failed",
    "verification_failed", "internal",
)  # fmt: skip
FLAGS = (
    "spread", "outliers", "drift", "preempted", "throttled", "hot", "too_few", "niced",
    "busy_host", "unstable_warmup", "shared_device", "host_overhead", "clocks_disagree",
    "taken_over",
)  # fmt: skip
ENERGY_METHODS = ("nvml_counter", "nvml_polled", "rapl_counter")
FLOPS_METHODS = ("counted", "formula", "published")
WEIGHTS_KINDS = ("seeded", "pretrained", "checkpoint", "embedded")
FORMATS = ("onnx", "pt2", "tflite", "pte")


def _column(
    name: str, dtype: pl.DataType, doc: str, values: tuple[str, ...] | None = None
) -> Column:
    return Column(name=name, dtype=dtype, doc=doc, values=values)


_IDENTITY = (
    _column("sweep_id", _STR, "the sweep; partition of the Parquet files"),
    _column("cell_key", _STR, "hash of model card, weights, exporter options and platform_key"),
    _column("repeat", _INT, "0-based; each repeat is a fresh process"),
    _column("attempt", _INT, "0-based try at this repeat; analysis takes the last that is ok"),
    _column("schema_version", _INT, "version of this table"),
    _column("fleetrank_version", _STR, "version that wrote the row"),
    _column("git_commit", _STR, "of the workspace, '-dirty' appended; null outside git"),
    _column("seed", _INT, "seed of the sweep: order of cells and inputs derive from it"),
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
    _column("flops_method", _STR, "how FLOPs were found", FLOPS_METHODS),
    _column("parameters", _INT, "number of parameters"),
    _column("accuracy_top1", _FLOAT, "ImageNet top-1 in per cent, as published"),
    _column("accuracy_source", _STR, "where that accuracy is published"),
    _column("artifact_sha256", _STR, "the exported file"),
    _column("artifact_format", _STR, "its format", FORMATS),
    _column("artifact_bytes", _INT, "its size"),
    _column("artifact_max_relative_error", _FLOAT, "max|a-b|/max|a| against PyTorch's output"),
    _column("exporter_versions", _STR, "JSON object, library to version"),
)
_DEVICE = (
    _column("device", _STR, "name of the registered device"),
    _column("taken_over_by", _STR, "equal device that measured in its place; null: itself"),
    _column("device_model", _STR, "its type: two phones of one model share it"),
    _column("tier", _STR, "class of device", TIERS),
    _column("origin", _STR, "who made the row", ORIGINS),
    _column("host", _STR, "hash of the host's name"),
    _column("os", _STR, "operating system of the device"),
    _column("arch", _STR, "instruction set"),
    _column("cpu_model", _STR, "as the system names it"),
    _column("logical_cores", _INT, "logical cores of the device"),
    _column("physical_cores", _INT, "physical cores of the device"),
    _column("memory_bytes", _INT, "memory of the device"),
    _column("is_virtual_machine", _BOOL, "whether the host is virtual"),
    _column("device_facts", _STR, "JSON object of further facts, as driver and power limit"),
)
_PLATFORM = (
    _column("platform_key", _STR, "device/runtime/backend/mode/precision/b/t/affinity/options"),
    _column("runtime", _STR, "what executed the artifact", STORED_RUNTIMES),
    _column("backend", _STR, "execution provider or delegate"),
    _column("mode", _STR, "how the graph is executed", MODES),
    _column("precision", _STR, "arithmetic of the artifact", PRECISIONS),
    _column("batch", _INT, "samples in one inference"),
    _column("threads", _INT, "threads inside one operator"),
    _column("affinity", _STR, "CPU numbers asked for, '0,1'; null when left to the system"),
    _column("options", _STR, "JSON object of runtime options that differ from the default"),
)
_OUTCOME = (
    _column("status", _STR, "how the attempt ended", STATUSES),
    _column("error_kind", _STR, "what went wrong", ERROR_KINDS),
    _column("error_message", _STR, "what happened and where"),
    _column("error_remedy", _STR, "what to do about it"),
    _column("error_stage", _STR, "stage of the attempt that failed"),
    _column("error_is_transient", _BOOL, "whether trying again made sense"),
    _column("exit_code", _INT, "of the worker; negative is a signal"),
)
_LATENCY = (
    _column("sample_kind", _STR, "what one sample stands for", SAMPLE_KINDS),
    _column("samples_ns", _INTS, "synchronised wall clock per inference, in order; null if none"),
    _column("device_samples_ns", _INTS, "device clock beside it (CUDA events)"),
    _column("host_overhead_ns", _FLOAT, "median of wall clock less device clock per inference"),
    _column("input_copy_ns", _INT, "copying the inputs to the device; part of no sample"),
    _column("sample_count", _INT, "number of timed inferences"),
    _column("latency_p50_ns", _FLOAT, "median of this process"),
    _column("latency_p90_ns", _FLOAT, "90th percentile of this process"),
    _column("latency_p95_ns", _FLOAT, "95th percentile of this process"),
    _column("latency_p99_ns", _FLOAT, "99th percentile of this process"),
    _column("latency_mean_ns", _FLOAT, "mean of this process"),
    _column("latency_std_ns", _FLOAT, "standard deviation (n - 1) of this process"),
    _column("load_ns", _INT, "reading the artifact and building the session"),
    _column("first_inference_ns", _INT, "the first inference after loading"),
    _column("warmup_ns", _INT, "length of the warm-up"),
    _column("warmup_runs", _INT, "inferences in the warm-up"),
    _column("stop_reason", _STR, "half_width, max_time or max_samples"),
)
_MEMORY = (
    _column("memory_metric", _STR, "what the memory figures count", MEMORY_METRICS),
    _column("baseline_memory_bytes", _INT, "resident size before loading, primer included"),
    _column("load_peak_memory_bytes", _INT, "peak over the baseline until the first output"),
    _column("peak_memory_bytes", _INT, "peak over the baseline while running; FRM's component"),
    _column("reserved_memory_bytes", _INT, "PyTorch's allocator took so much from the GPU"),
    _column("process_memory_bytes", _INT, "of the GPU, held by the process, context included"),
    _column("energy_mj", _FLOAT, "energy of one inference, with what the device takes when idle"),
    _column("energy_above_idle_mj", _FLOAT, "energy of one inference over the idle power"),
    _column("idle_power_mw", _FLOAT, "mean power before the model was loaded"),
    _column("energy_window_ns", _INT, "length of the runs repeated for energy"),
    _column("energy_runs", _INT, "inferences in that window"),
    _column("energy_counter_steps", _INT, "changes of the counter in that window"),
    _column("energy_method", _STR, "where energy comes from", ENERGY_METHODS),
)
_CONDITIONS = tuple(
    _column(f"{name}_{when}", dtype, f"{doc}, {when} the repeat")
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
        ("throttle_reasons", _STR, "what slows a GPU down; 'none' when nothing does"),
        ("throttled_ns", _INT, "time a GPU was slowed down for since its driver was loaded"),
        ("other_processes", _INT, "processes beside ours that use a GPU"),
    )
)
_WORKER = (
    _column("clock_max_mhz", _FLOAT, "highest clock the device offers"),
    _column("governor", _STR, "frequency governor"),
    _column("runtime_version", _STR, "version of the runtime library"),
    _column("python_version", _STR, "of the worker"),
    _column("runtime_settings", _STR, "JSON object of what the runtime was really given"),
    _column("worker_affinity", _STR, "CPUs the worker could use while timing, '0,1'"),
    _column("niceness", _INT, "of the worker"),
    _column("oom_score_adj", _INT, "of the worker"),
    _column("omp_num_threads", _STR, "OMP_NUM_THREADS the worker saw"),
    _column("involuntary_switches", _INT, "context switches forced while timing"),
    _column(
        "confinement", _STR, "walls around a file from outside; null: trusted, older or failed"
    ),
    _column("flags", _STRS, "doubts about this row", FLAGS),
    _column("raw_log", _STR, "kept tool output, relative to the results folder"),
    _column("started_utc", _UTC, "start of the attempt; of an imported row, when it was imported"),
    _column("finished_utc", _UTC, "end of the attempt"),
)
_SOURCE = (
    _column("source", _STR, "who published an imported row"),
    _column("source_ref", _STR, "file and sha256 of its content, or commit"),
    _column("licence", _STR, "terms the source is published under"),
    _column("derived", _STRS, "quantities not read as they are, each with how it was made"),
    _column("flops_source", _STR, "where FLOPs not counted here are published"),
)

COLUMNS: tuple[Column, ...] = (
    *_IDENTITY, *_MODEL, *_DEVICE, *_PLATFORM, *_OUTCOME, *_LATENCY, *_MEMORY, *_CONDITIONS,
    *_WORKER, *_SOURCE,
)  # fmt: skip

SCHEMA: dict[str, pl.DataType] = {column.name: column.dtype for column in COLUMNS}
"""What is stored."""
EXCLUDED = _column("excluded", _STR, "why the row was left out by hand; such rows enter no figure")
READ_COLUMNS: tuple[Column, ...] = (*COLUMNS, EXCLUDED)
READ_SCHEMA: dict[str, pl.DataType] = {column.name: column.dtype for column in READ_COLUMNS}
"""What readers get: the last column is not stored, but made from `results/exclusions.json`."""
ROW_KEY = ("sweep_id", "cell_key", "repeat", "attempt")
