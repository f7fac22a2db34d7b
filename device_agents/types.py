"""What an agent is asked (`MeasureTask`) and what it saw (`Measurement`): two types, never mixed.

All times are integer nanoseconds of a monotonic clock, all sizes bytes, all stamps UTC in
ISO 8601. `None` means not known or not applicable; 0 is a reading.
"""

from dataclasses import dataclass, field

from device_agents.vocabulary import (
    EnergyMethod,
    ErrorKind,
    Flag,
    MemoryMetric,
    Mode,
    Origin,
    Precision,
    Runtime,
    SampleKind,
    Status,
    Tier,
)

OptionValue = str | int | float | bool
Options = tuple[tuple[str, OptionValue], ...]
"""Runtime options that differ from the default, sorted by name; hashable, unlike a dict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurePolicy:
    """When warming up and timing end; the defaults are the measuring protocol's.

    Attributes:
        min_warmup_runs: at least this many runs, and
        min_warmup_s: at least this long, then
        warmup_tolerance: until the means of both halves differ by no more than this share, or
        max_warmup_s: this long.
        min_runs: timed runs, unless `max_time_s` ends them first (flag `too_few`).
        half_width: stop when the 95 % half-width of the median, as a share of it, is below this.
        max_time_s: at most this long for the timed runs.
        max_samples: at most this many timed runs.
        energy_s: least length of the runs repeated for energy, where it can be read; 0 for none.
    """

    min_warmup_runs: int = 10
    min_warmup_s: float = 0.5
    warmup_tolerance: float = 0.02
    max_warmup_s: float = 10.0
    min_runs: int = 100
    half_width: float = 0.01
    max_time_s: float = 20.0
    max_samples: int = 10_000
    energy_s: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How an artifact is to be executed: the device-independent part of a platform.

    Attributes:
        backend: execution provider or delegate: `cpu`, `cuda` or `tensorrt` for ONNX Runtime,
            `cpu` or `cuda` for PyTorch, `xnnpack` for LiteRT.
        affinity: CPU numbers the worker is pinned to; `None` leaves the choice to the system.
        options: non-defaults only; which names a runtime knows is `Runner.option_names`.
    """

    runtime: Runtime
    backend: str
    mode: Mode = Mode.EAGER
    precision: Precision = Precision.FP32
    batch: int = 1
    threads: int = 1
    affinity: tuple[int, ...] | None = None
    options: Options = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryTask:
    """A small model of known latency, run beside a repeat to see whether the device is itself.

    It is a TFLite file: the one format whose program every phone can have.

    Attributes:
        affinity: CPUs it is pinned to, as when the device was registered.
        reference_ns: what it took then.
        spread: largest less smallest of its medians then, over their mean; `None` if unknown.
        runs_before: run it before the repeat is measured.
        runs_after: and after it, as the last repeat of a device's share does.
    """

    artifact_path: str
    artifact_sha256: str
    affinity: tuple[int, ...] | None
    reference_ns: int
    spread: float | None
    runs_before: bool
    runs_after: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureTask:
    """One repeat of one cell: what a worker needs, and nothing about networks or sweeps.

    Attributes:
        task_id: opaque to the agent; comes back in the measurement.
        artifact_path: absolute path of the exported file on the device's host.
        artifact_sha256: checked by whoever opens the file; the simulated agent opens none.
        is_trusted: made by this workspace, so that a `.pt2` need not be scanned for pickles.
        primer_path: a tiny artifact of the same runtime, loaded and run before the baseline of
            memory is taken; `None` charges the runtime's lazy imports and pools to the model.
        seed: of the random inputs.
        timeout_s: the worker and its process group are killed after this long.
        memory_limit_bytes: RLIMIT_DATA of the worker; `None` leaves it to the agent.
        macs_and_parameters: only the simulated agent reads it: (MACs, parameters) of the network.
        canary: to be run beside the repeat; only phones have one.
        gpu_uuid: GPU or MIG instance of a GPU backend; `None` takes the only one there is.
        allows_shared_gpu: other processes on it flag the repeat instead of refusing it.
    """

    task_id: str
    artifact_path: str
    artifact_sha256: str
    execution: Execution
    is_trusted: bool = False
    primer_path: str | None = None
    seed: int = 0
    policy: MeasurePolicy = field(default_factory=MeasurePolicy)
    timeout_s: float = 300.0
    memory_limit_bytes: int | None = None
    macs_and_parameters: tuple[int, int] | None = None
    canary: CanaryTask | None = None
    gpu_uuid: str | None = None
    allows_shared_gpu: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InferTask:
    """Run an artifact once per given input and keep the outputs: what verification needs.

    Attributes:
        inputs_path: `.npz` with one array per model input, `input_0`, `input_1`, ...; the first
            axis counts the cases, each case is run as a batch of one.
        outputs_path: where the `.npz` with `output_0`, ... of shape (n_cases, ...) is written.
        gpu_uuid: as in `MeasureTask`.
    """

    task_id: str
    artifact_path: str
    artifact_sha256: str
    execution: Execution
    inputs_path: str
    outputs_path: str
    is_trusted: bool = False
    timeout_s: float = 300.0
    memory_limit_bytes: int | None = None
    gpu_uuid: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an attempt gave no measurement.

    Attributes:
        stage: `start prime idle load first_inference warmup timed energy canary verify export`.
        exit_code: of the worker; negative for a signal; `None` when it ended by itself.
    """

    kind: ErrorKind
    message: str
    remedy: str
    is_transient: bool
    stage: str | None = None
    exit_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The state of device and host at one moment; absent facts are `None`.

    Attributes:
        busy_share: share of all cores' time spent by other processes over the window before
            (or during) the repeat, 0 to 1.
        steal_share: share of time the hypervisor gave to others, 0 to 1.
        clock_mhz: mean current clock of the cores used; of a GPU its SM clock, which before the
            repeat means after the warm-up: an idle GPU rests at its lowest.
        clock_cap_mhz: the highest clock the cores are allowed now, below `clock_max_mhz` where
            heat or a battery saver lowers it.
        temp_c: hottest CPU, GPU or battery sensor, whichever the agent names in its docs.
        canary_ns: median of the canary at this moment; `None` when it was not run.
        throttle_reasons: of a GPU, what slows it down, joined by commas; `none` if nothing does.
        throttled_ns: of a GPU, time slowed down for power or heat since its driver was loaded.
        other_processes: that use the GPU; `None` when the driver does not list them.
    """

    load_1min: float | None = None
    busy_share: float | None = None
    steal_share: float | None = None
    clock_mhz: float | None = None
    clock_max_mhz: float | None = None
    governor: str | None = None
    temp_c: float | None = None
    available_memory_bytes: int | None = None
    battery_percent: float | None = None
    thermal_status: int | None = None
    clock_cap_mhz: float | None = None
    is_charging: bool | None = None
    is_screen_on: bool | None = None
    canary_ns: int | None = None
    memory_clock_mhz: float | None = None
    power_mw: float | None = None
    throttle_reasons: str | None = None
    throttled_ns: int | None = None
    other_processes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFacts:
    """What the measuring process found itself to be.

    Attributes:
        settings: what the runtime was really given, defaults included (threads, spinning,
            denormals, graph optimisation), sorted by name.
        affinity: CPUs the process was allowed to use while timing.
        involuntary_switches: context switches forced on the process during the timed runs.
    """

    runtime_version: str | None = None
    python_version: str | None = None
    settings: Options = ()
    affinity: tuple[int, ...] | None = None
    niceness: int | None = None
    oom_score_adj: int | None = None
    omp_num_threads: str | None = None
    involuntary_switches: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSummary:
    """Statistics of one process that a tool made itself and keeps no samples of.

    Percentiles are the tool's own, which need not interpolate; what it does not give is `None`.

    Attributes:
        median_ns: the figure that stands for the repeat; the mean, where a tool prints no median
            (the setting `summary_statistic` then says so).
        std_ns: of the tool's own kind; `benchmark_model` divides by n, and its text knows whole
            microseconds only.
    """

    median_ns: int
    count: int | None = None
    mean_ns: int | None = None
    std_ns: int | None = None
    p90_ns: int | None = None
    p95_ns: int | None = None
    p99_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """What the runs repeated for energy took, and how well that is known.

    Attributes:
        per_inference_mj: with what the device takes when idle; `None` when the window is too
            short or the counter moved too seldom in it.
        above_idle_mj: less the idle power over the window; `None` if either is missing.
        idle_power_mw: mean before the model was loaded, the runtime already open.
        window_ns: from one step of the counter to another.
        runs: inferences in the window.
        counter_steps: changes of the counter in the window.
    """

    method: EnergyMethod
    per_inference_mj: float | None
    above_idle_mj: float | None
    idle_power_mw: float | None
    window_ns: int
    runs: int
    counter_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What one repeat gave: raw samples and the circumstances they were taken in.

    Attributes:
        samples_ns: synchronised wall clock, one number per inference in order; empty when the
            tool gives none (see `sample_kind`) or the repeat failed early.
        device_samples_ns: device clock beside it (CUDA events); `None` without a stream.
        summary: the tool's own statistics, only with a `sample_kind` that has no samples.
        stop_reason: `half_width max_time max_samples`.
        load_peak_memory_bytes: peak while loading and first inference, over the baseline.
        run_peak_memory_bytes: peak while warming up and timing, over the same baseline; of
            PyTorch's allocator on a GPU, since before loading.
        reserved_memory_bytes: peak that PyTorch's allocator took from the GPU, over its baseline.
        process_memory_bytes: of the GPU, held by the process at the end, its context included.
        input_copy_ns: median time to copy the inputs from the host to the device; not in any
            sample.
        energy: `None` where nothing counts it.
        raw_log: all that an external tool wrote, for better parsers to come; `None` where
            fleetrank's own worker measured.
        origin: `simulated` and `virtual` mark rows that no real device made.
    """

    task_id: str
    status: Status
    origin: Origin
    sample_kind: SampleKind = SampleKind.PER_INFERENCE
    failure: Failure | None = None
    load_ns: int | None = None
    first_inference_ns: int | None = None
    warmup_ns: int | None = None
    warmup_runs: int | None = None
    samples_ns: tuple[int, ...] = ()
    device_samples_ns: tuple[int, ...] | None = None
    summary: ToolSummary | None = None
    stop_reason: str | None = None
    memory_metric: MemoryMetric | None = None
    baseline_memory_bytes: int | None = None
    load_peak_memory_bytes: int | None = None
    run_peak_memory_bytes: int | None = None
    reserved_memory_bytes: int | None = None
    process_memory_bytes: int | None = None
    input_copy_ns: int | None = None
    energy: Energy | None = None
    conditions_before: Conditions | None = None
    conditions_after: Conditions | None = None
    worker: WorkerFacts | None = None
    flags: tuple[Flag, ...] = ()
    raw_log: str | None = None
    started_utc: str | None = None
    finished_utc: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """What a device is; stored with every row it makes.

    Attributes:
        device_model: two phones of one model are two devices, one device model.
        physical_cores: `None` where the system does not tell.
        extra: further facts for a person to read, sorted by name.
    """

    device_model: str
    tier: Tier
    origin: Origin
    os: str
    arch: str
    cpu_model: str | None = None
    logical_cores: int | None = None
    physical_cores: int | None = None
    memory_bytes: int | None = None
    clock_max_mhz: float | None = None
    governor: str | None = None
    is_virtual_machine: bool | None = None
    extra: Options = ()
