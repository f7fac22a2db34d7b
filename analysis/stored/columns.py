"""The only definition of the columns of the measurements table.

One row is one attempt at one repeat of one cell, failures included; the key is
`(sweep_id, cell_key, repeat, attempt)`. Units are the last part of a name. `null` means not known
or not applicable, never 0. A string column with a closed set of values names it; the sets are
those of `foundation.vocabulary`.
A new measured column is a line here and a field in `device_agents/contract/measurement.py`: rows
take it from there, and a test names the one that is missing. A fact of a device is a pair of
`DeviceFacts.extra` instead: all pairs are one column.
"""

import polars as pl

from fleetrank.analysis.stored.column import (
    BOOL,
    FLOAT,
    INT,
    INTS,
    STR,
    STRS,
    UTC,
    Column,
    at,
    column,
    measured,
)
from fleetrank.foundation.vocabulary import (
    CpuChoice,
    Design,
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
    Statistic,
    Status,
    Tier,
    WeightsKind,
    words_of,
)

SENTINELS = (-1.0, 0.0, float(2**31 - 1), float(2**32 - 1))
"""Codes for 'missing' in published tables, compared exactly: 2,048 MiB is one byte above one."""
ROUNDED_SENTINELS = (float(2**63 - 1), float(2**64 - 1))
"""The same, compared to 9 digits. Seen: -1 in OneProxy, 0 and 2^64-1 in AI Hub."""
SMALLEST, LARGEST, LARGEST_INTEGER = 1e-18, 1e30, 10**17
"""Sizes of the figures, beside 0, that tables compute with: a product of several of them is finite,
and so is its square; a sum of integers has 64 bits. A code for 'missing' in s is 1.8e28 ns."""
SCHEMA_VERSION = 1
"""Increased when a column is removed or changes its meaning; a newer version is an error."""
RUNTIMES = words_of(Runtime)
IMPORTED_RUNTIMES = ("qnn", "llama_cpp")
"""Runtimes of published measurements only; fleetrank does not run them."""
STORED_RUNTIMES = (*RUNTIMES, *IMPORTED_RUNTIMES)
PRECISIONS = words_of(Precision)
MODES = words_of(Mode)
CPU_CHOICES = words_of(CpuChoice)
TIERS = words_of(Tier)
FAMILIES = words_of(Family)
NO_FAMILY = "not stated"
"""Shown in place of a family that a row does not have, such as a published model's."""
ORIGINS = words_of(Origin)
DEFAULT_ORIGINS = ("measured", "imported")
"""Rows from real devices; virtual and simulated rows are used only on request."""
SAMPLE_KINDS = words_of(SampleKind)
DESIGNS = words_of(Design)
STATISTICS = words_of(Statistic)
STATUSES = words_of(Status)
MEMORY_METRICS = words_of(MemoryMetric)
ERROR_KINDS = words_of(ErrorKind)
FLAGS = words_of(Flag)
ENERGY_METHODS = words_of(EnergyMethod)
FLOPS_METHODS = words_of(FlopsMethod)
WEIGHTS_KINDS = words_of(WeightsKind)
FORMATS = words_of(Format)
_IDENTITY = (
    column("sweep_id", STR, "the sweep; partition of the Parquet files"),
    column("cell_key", STR, "hash of model card, weights, exporter options and platform_key"),
    column("repeat", INT, "0-based; each repeat is a fresh process"),
    column("attempt", INT, "0-based attempt at this repeat; analysis uses the last ok one"),
    column("schema_version", INT, "version of this table"),
    column("fleetrank_version", STR, "version that wrote the row"),
    column("git_commit", STR, "commit of the workspace, '-dirty' if changed; null outside git"),
    column("seed", INT, "seed of the sweep; the order of cells and the inputs derive from it"),
    column("stopping_rule", STR, "JSON: when the sweep stopped; null if repeats were fixed"),
)
_MODEL = (
    column("model", STR, "name of the model card"),
    column("family", STR, "architecture family", FAMILIES),
    column("has_attention", BOOL, "attention model, for the FLOPs-shift test"),
    column("card_sha256", STR, "identity of the model card"),
    column("weights_kind", STR, "which weights", WEIGHTS_KINDS),
    column("weights_id", STR, "seed, pretrained tag or sha256 of the weights"),
    column("input_size", INT, "height = width of the input in pixels"),
    column("macs", INT, "multiply-accumulates of one inference at batch 1"),
    column("flops", INT, "2 x MACs, of one inference at batch 1"),
    column("flops_method", STR, "how FLOPs were obtained", FLOPS_METHODS),
    column("parameters", INT, "number of parameters"),
    column("accuracy_top1", FLOAT, "ImageNet top-1 in per cent, as published"),
    column("accuracy_source", STR, "where that accuracy is published"),
    column("artifact_sha256", STR, "sha256 of the exported file"),
    column("artifact_format", STR, "its format", FORMATS),
    column("artifact_bytes", INT, "its size"),
    column("artifact_max_relative_error", FLOAT, "max|a-b|/max|a| against PyTorch's output"),
    column("artifact_snr_db", FLOAT, "signal-to-noise ratio of the same outputs, in dB"),
    column("artifact_top1_agreement", FLOAT, "share of the same outputs with the same largest one"),
    column("recipe", STR, "what made integers of a network, and from what; null: nothing did"),
    column("border", STR, "inputs, outputs: 'float', 'int8 in, float out'; null: not known"),
    column("border_scales", STR, "JSON: in, out: lists of [scale, zero point]; null: not stated"),
    column("exporter_versions", STR, "JSON object, library to version"),
)
_DEVICE = (
    column("device", STR, "name of the registered device"),
    column(
        "taken_over_by",
        STR,
        "equal device that made the measurement instead; null: the device itself",
    ),
    column("device_model", STR, "type of the device; two phones of one model share it"),
    column("tier", STR, "class of device", TIERS),
    measured("origin", STR, "source of the row", ORIGINS),
    column("host", STR, "hash of the host's name"),
    column("os", STR, "operating system of the device"),
    column("arch", STR, "instruction set"),
    column("cpu_model", STR, "name of the CPU in the system"),
    column("logical_cores", INT, "logical cores of the device"),
    column("physical_cores", INT, "physical cores of the device"),
    column("memory_bytes", INT, "memory of the device"),
    column("is_virtual_machine", BOOL, "whether the host is virtual"),
    column("peak_gflops", FLOAT, "10^9 FLOP/s that as many threads reached in a large product"),
    column("peak_gbps", FLOAT, "10^9 bytes/s that they read and wrote in a large copy"),
    column("device_facts", STR, "JSON object of further facts, such as driver and power limit"),
)
_PLATFORM = (
    column("platform_key", STR, "device/runtime/backend/mode/precision/b/t/affinity/options/axes"),
    column("runtime", STR, "what executed the artifact", STORED_RUNTIMES),
    column("backend", STR, "execution provider or delegate"),
    column("mode", STR, "how the graph is executed", MODES),
    column("precision", STR, "arithmetic of the artifact", PRECISIONS),
    column("batch", INT, "samples in one inference"),
    column("threads", INT, "threads inside one operator"),
    column("cpu_choice", STR, "CPUs that the sweep asked for; null: not stated", CPU_CHOICES),
    column("affinity", STR, "CPU numbers it is pinned to, '0,1'; null if the system chooses"),
    column("options", STR, "JSON object of runtime options that differ from the default"),
    column("axes", STR, "sizes of named input axes, 'seq=128,time=50'; null if there are none"),
    column("workload", STR, "what one inference does: 'image', or 'decode@512'"),
    column("prompt_tokens", INT, "tokens that one inference reads at once, per sequence"),
    column("context_tokens", INT, "slots of the cache, per sequence; null: it has none"),
    column("generated_tokens", INT, "tokens made after the prompt, per sequence"),
    column("tokens_per_inference", INT, "tokens of one timed sample, in all sequences"),
    column("vocabulary", INT, "number of token ids"),
    column("model_context_tokens", INT, "most tokens of one sequence that the model's card states"),
    column("weight_bytes", INT, "bytes of a language model's weights, shared ones once"),
    column("state_bytes", INT, "bytes of the cache, or of the memories, of all sequences"),
    column("bytes_moved", INT, "bytes of weights and cache that one timed sample moves"),
    measured("backend_nodes", INT, "nodes (layers) of the graph that ran on the backend"),
    measured("graph_nodes", INT, "nodes (layers) of the graph; null: placement not stated"),
    measured("integer_products", INT, "convolutions and matrix products with integers"),
    measured("snr_db", FLOAT, "signal-to-noise ratio of the outputs here against fp32, in dB"),
    measured("top1_agreement", FLOAT, "share of outputs here with the same largest one as in fp32"),
    measured("products", INT, "all convolutions and matrix products; null: not counted"),
)
_OUTCOME = (
    measured("status", STR, "result of the attempt", STATUSES),
    at("failure.kind", "error_kind", STR, "kind of the error", ERROR_KINDS),
    at("failure.message", "error_message", STR, "text of the error"),
    at("failure.remedy", "error_remedy", STR, "what the user can do about it"),
    at("failure.stage", "error_stage", STR, "stage of the attempt that failed"),
    at("failure.is_transient", "error_is_transient", BOOL, "whether a retry made sense"),
    at("failure.", "exit_code", INT, "exit code of the worker; a negative one is a signal"),
)
_LATENCY = (
    measured("sample_kind", STR, "what one sample measures", SAMPLE_KINDS),
    column("statistic", STR, "what latency_p50_ns is; null: not stated", STATISTICS),
    measured("samples_ns", INTS, "synchronised wall clock per inference, in order; null if none"),
    measured("ttft_samples_ns", INTS, "times of the prompts of generate; samples are its steps"),
    measured("device_samples_ns", INTS, "the same from the device clock (CUDA events)"),
    column("host_overhead_ns", FLOAT, "median of wall clock minus device clock per inference"),
    measured("input_copy_ns", INT, "time to copy the inputs to the device; not in the samples"),
    column("sample_count", INT, "number of timed inferences"),
    column("latency_p50_ns", FLOAT, "latency of this process: its median, or see statistic"),
    column("latency_p90_ns", FLOAT, "90th percentile of this process"),
    column("latency_p95_ns", FLOAT, "95th percentile of this process"),
    column("latency_p99_ns", FLOAT, "99th percentile of this process"),
    column("latency_mean_ns", FLOAT, "mean of this process"),
    column("latency_std_ns", FLOAT, "standard deviation (n - 1) of this process"),
    measured("load_ns", INT, "time to read the artifact and create the session"),
    measured("first_inference_ns", INT, "time of the first inference after loading"),
    measured("warmup_ns", INT, "length of the warm-up"),
    measured("warmup_runs", INT, "inferences in the warm-up"),
    measured("stop_reason", STR, "half_width, max_time, max_samples, min_time or stopped"),
    measured("throttled_after_ns", INT, "time until an allowed clock of a phone fell"),
    measured("sustained_ns", INT, "wall clock of back-to-back runs; null without min_time_s"),
    column("design", STR, "how repeats were arranged in time; null: not known", DESIGNS),
    measured("round_id", STR, "equal for the cells that took turns; null: measured alone"),
    column("block_starts_ns", INTS, "start of each block on the host's monotonic clock"),
    column("block_sample_counts", INTS, "samples in each block; they follow one another"),
    column("block_medians_ns", INTS, "median of the samples of each block"),
    column("left_out_ns", INTS, "first runs of all blocks, which are no samples"),
)
_MEMORY = (
    measured("memory_metric", STR, "what the memory figures count", MEMORY_METRICS),
    measured("baseline_memory_bytes", INT, "resident size before loading, with the primer"),
    measured("load_peak_memory_bytes", INT, "peak above the baseline until the first output"),
    at("run_peak_memory_bytes", "peak_memory_bytes", INT,
        "peak above the baseline while running; used by FRM"),
    measured("reserved_memory_bytes", INT, "GPU memory that PyTorch's allocator reserved"),
    measured("process_memory_bytes", INT, "GPU memory of the process, with its context"),
    at("energy.per_inference_mj", "energy_mj", FLOAT,
        "energy of one inference, including idle power"),
    at("energy.above_idle_mj", "energy_above_idle_mj", FLOAT,
        "energy of one inference above idle power"),
    at("energy.", "idle_power_mw", FLOAT, "mean power before the model was loaded"),
    at("energy.window_ns", "energy_window_ns", INT, "length of the runs repeated for energy"),
    at("energy.runs", "energy_runs", INT, "inferences in that window"),
    at("energy.counter_steps", "energy_counter_steps", INT,
        "changes of the energy counter in that window"),
    at("energy.method", "energy_method", STR, "source of the energy figure", ENERGY_METHODS),
)  # fmt: skip
_CONDITIONS = tuple(
    at(f"conditions_{when}.{name}", f"{name}_{when}", dtype, f"{doc}, {when} the repeat")
    for when in ("before", "after")
    for name, dtype, doc in (
        ("load_1min", FLOAT, "load average of one minute"),
        ("busy_share", FLOAT, "share of core time used by others, 0 to 1"),
        ("steal_share", FLOAT, "share of core time taken by the hypervisor, 0 to 1"),
        ("clock_mhz", FLOAT, "mean current clock"),
        ("temp_c", FLOAT, "hottest sensor"),
        ("available_memory_bytes", INT, "memory available"),
        ("battery_percent", FLOAT, "battery level"),
        ("thermal_status", INT, "Android thermal status, 0 none to 6 shutdown"),
        ("clock_cap_mhz", FLOAT, "highest clock the cores were allowed"),
        ("is_charging", BOOL, "whether the battery was charging or full on a charger"),
        ("is_screen_on", BOOL, "whether the phone was awake"),
        ("canary_ns", INT, "median of the canary model, where it was run"),
        ("memory_clock_mhz", FLOAT, "clock of a GPU's memory"),
        ("power_mw", FLOAT, "power of a GPU"),
        ("throttle_reasons", STR, "why a GPU or a board is slowed; 'none' if it is not"),
        ("throttled_ns", INT, "time that a GPU was throttled since its driver was loaded"),
        ("other_processes", INT, "other processes that use a GPU"),
    )
)
_WORKER = (
    column("clock_max_mhz", FLOAT, "highest clock of the device"),
    column("governor", STR, "frequency governor"),
    at("worker.", "runtime_version", STR, "version of the runtime library"),
    at("worker.", "python_version", STR, "version of Python in the worker"),
    at("worker.settings", "runtime_settings", STR,
        "JSON object of the settings that the runtime really used"),
    at("worker.affinity", "worker_affinity", STR,
        "CPUs the worker could use while timing, '0,1'"),
    at("worker.", "niceness", INT, "niceness of the worker"),
    at("worker.", "oom_score_adj", INT, "oom_score_adj of the worker"),
    at("worker.", "omp_num_threads", STR, "OMP_NUM_THREADS of the worker"),
    at("worker.", "involuntary_switches", INT, "involuntary context switches while timing"),
    at("worker.", "confinement", STR,
        "sandbox of an untrusted file; null: trusted, older or failed"),
    measured("flags", STRS, "quality flags of this row", FLAGS),
    measured("packages", STRS,
        "packages beside fleetrank that add its runtime, device kind or importer; null: none"),
    measured("raw_log", STR, "path of the stored tool output in the results folder"),
    measured("waited_s", FLOAT,
        "time in s that the attempt waited until its device was free and fit"),
    measured("started_utc", UTC, "start of the attempt, or time of the import"),
    measured("finished_utc", UTC, "end of the attempt"),
)  # fmt: skip
_SOURCE = (
    column("source", STR, "publisher of an imported row"),
    column("source_ref", STR, "file and sha256 of its content, or commit"),
    column("licence", STR, "licence of the source"),
    column("derived", STRS, "converted quantities, each with its conversion"),
    column("flops_source", STR, "where FLOPs are published that fleetrank did not count"),
)
COLUMNS: tuple[Column, ...] = (
    *_IDENTITY, *_MODEL, *_DEVICE, *_PLATFORM, *_OUTCOME, *_LATENCY, *_MEMORY, *_CONDITIONS,
    *_WORKER, *_SOURCE,
)  # fmt: skip
SCHEMA: dict[str, pl.DataType] = {column.name: column.dtype for column in COLUMNS}
"""The schema of stored rows."""
EXCLUDED = column("excluded", STR, "reason of the exclusion by hand; no figure uses such rows")
READ_COLUMNS: tuple[Column, ...] = (*COLUMNS, EXCLUDED)
READ_SCHEMA: dict[str, pl.DataType] = {column.name: column.dtype for column in READ_COLUMNS}
"""The schema for readers: the last column comes from `results/exclusions.json`."""
ROW_KEY = ("sweep_id", "cell_key", "repeat", "attempt")
