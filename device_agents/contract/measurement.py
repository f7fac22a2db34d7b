"""The answer of an agent; the request is a `MeasureTask`, a separate type.

All times are integer nanoseconds of a monotonic clock, all sizes are bytes, all timestamps are UTC
in ISO 8601. `None` means not known or not applicable; 0 is a reading.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from statistics import median

from fleetrank.device_agents.contract.kernel_profile import Profile
from fleetrank.device_agents.contract.replica_set import ReplicaSet
from fleetrank.device_agents.contract.task import Options
from fleetrank.foundation.vocabulary import (
    EnergyMethod,
    ErrorKind,
    Flag,
    MemoryMetric,
    Origin,
    SampleKind,
    Statistic,
    Status,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A device is not fit yet: it tried nothing, and the caller sends the same task again.

    Attributes:
        ask_again_s: seconds from now until the device may be asked again.
        limit_s: if the device is still not fit after this time of asking, the attempt has failed.
    """

    ask_again_s: float
    limit_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an attempt returned no measurement.

    Attributes:
        stage: `start prime idle load first_inference warmup timed energy canary verify export`.
        exit_code: of the worker; negative for a signal; `None` if it ended normally.
        wait: the device asks for time, so this is not an attempt yet; `None` if it ended.
    """

    kind: ErrorKind
    message: str
    remedy: str
    is_transient: bool
    stage: str | None = None
    exit_code: int | None = None
    wait: Wait | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The state of device and host at one moment; missing facts are `None`.

    Attributes:
        busy_share: share of all cores' time that other processes used in the window before
            (or during) the repeat, 0 to 1.
        steal_share: share of time that the hypervisor gave to other guests, 0 to 1.
        clock_mhz: mean current clock of the cores used; for a GPU its SM clock. The GPU's value
            before the repeat is read after the warm-up, because an idle GPU runs at its lowest.
        clock_cap_mhz: the highest clock the cores may use now; below `clock_max_mhz` if heat or a
            battery saver lowers it.
        temp_c: hottest CPU, GPU or battery sensor; the agent's documentation says which.
        canary_ns: median of the canary at this moment; `None` if it did not run.
        throttle_reasons: reasons that slow a GPU or a board down, joined by commas; `none` if it
            reports none.
        throttled_ns: time a GPU was slowed for power or heat since its driver was loaded.
        other_processes: other processes on the GPU; `None` if the driver does not list them.
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
    """Facts that the measuring process found about itself.

    Attributes:
        settings: the settings the runtime really used, defaults included (threads, spinning,
            denormals, graph optimisation), sorted by name.
        affinity: CPUs the process could use while timing.
        involuntary_switches: context switches forced on the process during the timed runs.
        confinement: barriers around it, as `landlock7+seccomp+audit`; `None` for a trusted file.
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
    """Statistics of one process, computed by a tool that keeps no samples.

    Percentiles are the tool's own and may not be interpolated; a missing one is `None`.

    Attributes:
        latency_ns: the latency of the repeat: the median, or what the tool prints in its place.
        statistic: what `latency_ns` is.
        std_ns: by the tool's own definition; `benchmark_model` divides by n, and its text has only
            whole microseconds.
    """

    latency_ns: int
    statistic: Statistic
    count: int | None = None
    mean_ns: int | None = None
    std_ns: int | None = None
    p90_ns: int | None = None
    p95_ns: int | None = None
    p99_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """The energy of the repeated runs, and the quality of the reading.

    Attributes:
        per_inference_mj: includes the device's idle energy; `None` if the window is too short or
            the counter changed too seldom in it.
        above_idle_mj: the idle power over the window is subtracted; `None` if either is missing.
        idle_power_mw: mean before the model was loaded; the runtime was already open.
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
class Block:
    """One turn of a cell in a round: consecutive samples of its process.

    Each cell of a round has one block in each cycle, so its n-th block belongs to the n-th cycle.

    Attributes:
        start_ns: before its first run, on the host's monotonic clock, which the processes of one
            boot share.
        samples: how many of the measurement's samples, in order, belong to it.
        left_out_ns: times of its first runs, which are no samples.
    """

    start_ns: int
    samples: int
    left_out_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The result of one repeat: raw samples and the conditions during the repeat.

    Attributes:
        samples_ns: synchronised wall clock, one number per inference in order; empty if the
            tool gives none (see `sample_kind`) or the repeat failed early.
        ttft_samples_ns: times of the prompts of `generate`, one per sequence in order, whose
            steps are the samples; `None` for all other workloads.
        device_samples_ns: device clock for the same runs (CUDA events); `None` without a stream.
        summary: the tool's own statistics, only with a `sample_kind` that has no samples.
        stop_reason: `half_width max_time max_samples min_time`, or `stopped`: the user ended its
            round after the current blocks. In a round `half_width` is that of the differences
            between cells.
        sustained_ns: wall clock from the start of the first timed run to the end of the last;
            `None` unless the policy has `min_time_s`, or a tool does not state it.
        throttled_after_ns: of a phone, time from the start of its program until an allowed clock
            was seen to have fallen; `None` if it was not.
        round_id: equal for the cells that took turns; `None` if the cell was measured alone.
        blocks: the turns of the cell in its round; empty without one.
        load_peak_memory_bytes: peak while loading and first inference, over the baseline.
        run_peak_memory_bytes: peak during the warm-up, over the same baseline; on a GPU the peak of
            PyTorch's allocator since before loading. The storage of the samples is not part of it.
        reserved_memory_bytes: peak that PyTorch's allocator reserved on the GPU, over its baseline.
        process_memory_bytes: GPU memory held by the process at the end, with its context.
        backend_nodes: nodes of the graph that ran on the backend, such as a delegate; `None` if the
            tool does not report it.
        graph_nodes: nodes of the graph.
        integer_products: of a file with integers, the convolutions and matrix products that the
            runtime computes with integers; `None` if the runtime does not show it.
        products: all of them.
        snr_db, top1_agreement: of the outputs on this device beside those of the network in fp32,
            as in `Comparison`; `None` unless the task has outputs to compare with.
        input_copy_ns: median time to copy the inputs from the host to the device; no sample
            includes it.
        energy: `None` if the device has no energy counter.
        packages: the packages beside fleetrank that add its runtime or its kind of device, as
            `fleetrank-npz 0.1.0`.
        raw_log: all output of an external tool, so that later parsers can read it again; `None`
            if fleetrank's own worker measured.
        profile: where the time goes, of a task that asks for it; it has no samples then.
        replicas: the processes of a task that asks for several; the samples are theirs then.
        waited_s: how long the task waited on its host for its device and for the host; in a row,
            also how long the device rested before. `None` if unknown.
        origin: `simulated`, `virtual` and `emulated` mark rows that no real device produced.
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
    ttft_samples_ns: tuple[int, ...] | None = None
    device_samples_ns: tuple[int, ...] | None = None
    summary: ToolSummary | None = None
    stop_reason: str | None = None
    sustained_ns: int | None = None
    throttled_after_ns: int | None = None
    round_id: str | None = None
    blocks: tuple[Block, ...] = ()
    memory_metric: MemoryMetric | None = None
    baseline_memory_bytes: int | None = None
    load_peak_memory_bytes: int | None = None
    run_peak_memory_bytes: int | None = None
    reserved_memory_bytes: int | None = None
    process_memory_bytes: int | None = None
    backend_nodes: int | None = None
    graph_nodes: int | None = None
    integer_products: int | None = None
    products: int | None = None
    snr_db: float | None = None
    top1_agreement: float | None = None
    input_copy_ns: int | None = None
    energy: Energy | None = None
    conditions_before: Conditions | None = None
    conditions_after: Conditions | None = None
    worker: WorkerFacts | None = None
    flags: tuple[Flag, ...] = ()
    packages: tuple[str, ...] = ()
    raw_log: str | None = None
    profile: Profile | None = None
    replicas: ReplicaSet | None = None
    waited_s: float | None = None
    started_utc: str | None = None
    finished_utc: str | None = None

    @property
    def latency_ns(self) -> int | None:
        """The median of the samples, or the tool's own figure; `None` without either."""
        if self.samples_ns:
            return round(median(self.samples_ns))
        return None if self.summary is None else self.summary.latency_ns


_CLOCK_STEP_S = 2.0
"""A smaller difference does not mean that the clock was set."""


def utc_now() -> str:
    """The timestamp that rows store."""
    return datetime.now(timezone.utc).isoformat()


def with_possible_times(found: Measurement, took_s: float) -> Measurement:
    """Ends it `took_s` after its start if its times differ: the clock was set meanwhile."""
    if found.started_utc is None or found.finished_utc is None:
        return found
    started, finished = map(datetime.fromisoformat, (found.started_utc, found.finished_utc))
    if timedelta() <= finished - started <= timedelta(seconds=took_s + _CLOCK_STEP_S):
        return found
    return replace(found, finished_utc=(started + timedelta(seconds=took_s)).isoformat())


def failed(
    task_id: str,
    failure: Failure,
    origin: Origin = Origin.MEASURED,
    started_utc: str | None = None,
) -> Measurement:
    """A failed measurement of an attempt that ends now; without a start time it also starts now."""
    now = utc_now()
    return Measurement(
        task_id=task_id,
        status=Status.FAILED,
        origin=origin,
        failure=failure,
        started_utc=started_utc or now,
        finished_utc=now,
    )
