"""What an agent saw; what it was asked is a `MeasureTask`, a type of its own.

All times are integer nanoseconds of a monotonic clock, all sizes bytes, all stamps UTC in
ISO 8601. `None` means not known or not applicable; 0 is a reading.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from fleetrank.device_agents.contract.task import Options
from fleetrank.device_agents.contract.vocabulary import (
    EnergyMethod,
    ErrorKind,
    Flag,
    MemoryMetric,
    Origin,
    SampleKind,
    Status,
)


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
        confinement: walls around it, as `landlock7+audit`; `None` for a trusted file.
    """

    runtime_version: str | None = None
    python_version: str | None = None
    settings: Options = ()
    affinity: tuple[int, ...] | None = None
    niceness: int | None = None
    oom_score_adj: int | None = None
    omp_num_threads: str | None = None
    involuntary_switches: int | None = None
    confinement: str | None = None


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


def utc_now() -> str:
    """The stamp rows carry."""
    return datetime.now(UTC).isoformat()


def failed(
    task_id: str, failure: Failure, origin: Origin, started_utc: str | None = None
) -> Measurement:
    """The measurement of an attempt that gave none and ends now; it also began now, unless told."""
    now = utc_now()
    return Measurement(
        task_id=task_id,
        status=Status.FAILED,
        origin=origin,
        failure=failure,
        started_utc=started_utc or now,
        finished_utc=now,
    )
