"""A simulated device, for tests and for trying out an analysis.

Its results depend only on its options, the task and the seeds.
"""

import math
import platform
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType

from fleetrank.device_agents.contract.agent import (
    DeviceFacts,
    StopRequested,
    never_stop,
    read_fields,
)
from fleetrank.device_agents.contract.kind import DeviceOptions
from fleetrank.device_agents.contract.measurement import (
    Failure,
    Measurement,
    WorkerFacts,
    failed,
    interrupted,
    utc_now,
)
from fleetrank.device_agents.contract.task import (
    Execution,
    InferTask,
    MeasurePolicy,
    MeasureTask,
    TokenCost,
)
from fleetrank.device_agents.errors import PermanentError
from fleetrank.device_agents.host.worker_client import infer_in_worker
from fleetrank.device_agents.timing import (
    HalfWidthRule,
    Seen,
    judge,
    sequence_policy,
    time_for,
    time_sequences,
)
from fleetrank.foundation.vocabulary import (
    NS_PER_S,
    WEIGHT_BYTES,
    ErrorKind,
    MemoryMetric,
    Origin,
    Runtime,
    SampleKind,
    Status,
    Tier,
)

_GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedOptions:
    """The properties of a simulated device; `None` stands for the value of its tier.

    Attributes:
        memory_bytes: a larger model fails with `out_of_memory`.
        efficiency_onnx: share of the peak and of the bandwidth that a runtime reaches; above 1 if
            it is better than the runtime that they were stated for. The others have the same
            meaning.
        noise: relative sigma between processes; samples of one process have a fifth of it.
        heat: relative growth of the latency of a hot device. Each repeat starts on a cool one;
            after 10 s of computing the latency has 63 % of the growth.
        crash_rate: share of tasks that end with a crash.
        loss_rate: share of tasks that the device does not answer; they are tried again.
        duration_s: real time a repeat takes.
    """

    tier: str = "cpu"
    peak_gflops: float | None = None
    bandwidth_gbps: float | None = None
    overhead_us: float | None = None
    memory_bytes: int | None = None
    efficiency_onnx: float | None = None
    efficiency_torch: float | None = None
    efficiency_tflite: float | None = None
    efficiency_executorch: float | None = None
    noise: float = 0.0
    heat: float = 0.0
    seed: int = 0
    device_model: str = "simulated"
    crash_rate: float = 0.0
    loss_rate: float = 0.0
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What a simulated device can do.

    Attributes:
        peak_gflops: arithmetic in 10^9 operations a second.
        bandwidth_gbps: memory in 10^9 bytes a second.
        overhead_us: added to every inference, whatever its size.
        efficiency: of each runtime.
    """

    peak_gflops: float
    bandwidth_gbps: float
    overhead_us: float
    memory_bytes: int
    efficiency: Mapping[Runtime, float]


_TIERS: Mapping[Tier, Capacity] = MappingProxyType(
    {
        Tier.GPU: Capacity(
            peak_gflops=8_000.0,
            bandwidth_gbps=300.0,
            overhead_us=300.0,
            memory_bytes=16 * _GIB,
            efficiency={
                Runtime.ONNX: 1.0,
                Runtime.TORCH: 0.8,
                Runtime.TFLITE: 0.6,
                Runtime.EXECUTORCH: 0.6,
            },
        ),
        Tier.CPU: Capacity(
            peak_gflops=100.0,
            bandwidth_gbps=20.0,
            overhead_us=50.0,
            memory_bytes=16 * _GIB,
            efficiency={
                Runtime.ONNX: 1.0,
                Runtime.TORCH: 0.7,
                Runtime.TFLITE: 0.8,
                Runtime.EXECUTORCH: 0.75,
            },
        ),
        Tier.EDGE: Capacity(
            peak_gflops=40.0,
            bandwidth_gbps=10.0,
            overhead_us=100.0,
            memory_bytes=8 * _GIB,
            efficiency={
                Runtime.ONNX: 1.0,
                Runtime.TORCH: 0.6,
                Runtime.TFLITE: 1.3,
                Runtime.EXECUTORCH: 1.2,
            },
        ),
    }
)
"""Magnitudes, in fp32.

GPU: NVIDIA T4, 8.1 TFLOP/s, 320 GB/s, 16 GB (its data sheet, 2019); the overhead is 60 kernels at
5 microseconds. CPU: one core with AVX2 at 3 GHz (two units, 8 lanes, multiply and add: 96 GFLOP/s)
and one channel of DDR4-2666 (21 GB/s). Edge: one Cortex-A78 at 2.4 GHz (two units, 4 lanes,
multiply and add: 38 GFLOP/s) and a third of the 34 GB/s of a phone's LPDDR4X-4266.
The efficiencies are round numbers of the order by which runtimes differ: TFLite and ExecuTorch use
XNNPACK, which is written for Arm first. They have no other meaning; `devices add --like` fits them.
"""
_POSITIVE = (
    "peak_gflops", "bandwidth_gbps", "memory_bytes", *(f"efficiency_{word}" for word in Runtime),
)  # fmt: skip
_NOT_NEGATIVE = ("overhead_us", "noise", "heat", "seed", "duration_s", "crash_rate", "loss_rate")


def read_options(options: DeviceOptions) -> SimulatedOptions:
    """Checks the options of a device file.

    Raises:
        PermanentError: an unknown name, a wrong type, or a value out of range.
    """
    read = read_fields(SimulatedOptions, "simulated", options)
    if read.tier not in list(Tier):
        raise PermanentError(f"unknown tier {read.tier!r}", f"use one of: {', '.join(Tier)}")
    for name in _POSITIVE:
        _check(name, getattr(read, name), "above 0", is_allowed=lambda value: value > 0)
    for name in _NOT_NEGATIVE:
        _check(name, getattr(read, name), "at least 0", is_allowed=lambda value: value >= 0)
    return read


def capacity_of(options: SimulatedOptions) -> Capacity:
    """The capacity of a device: its options, and its tier where they say nothing."""
    of_tier = _TIERS[Tier(options.tier)]
    stated = {
        field.name: value
        for field in fields(Capacity)
        if (value := getattr(options, field.name, None)) is not None
    }
    efficiency = {
        runtime: getattr(options, f"efficiency_{runtime}") or usual
        for runtime, usual in of_tier.efficiency.items()
    }
    return replace(of_tier, efficiency=efficiency, **stated)


def _check(
    name: str, value: float | None, range_: str, *, is_allowed: Callable[[float], bool]
) -> None:
    if value is not None and not is_allowed(value):
        raise PermanentError(f"option {name} is {value}", f"it must be {range_}")


# What one repeat takes on a simulated device, from the cost of its model.


def latency_ns(capacity: Capacity, macs: int, parameters: int, execution: Execution) -> float:
    """Time of one inference: the larger of computing and reading the weights, plus overhead.

    Source: S. Williams, A. Waterman, D. Patterson, Roofline (CACM 52(4), 2009).
    """
    compute_ns = 2 * macs * execution.batch / capacity.peak_gflops
    memory_ns = parameters * WEIGHT_BYTES[execution.precision] / capacity.bandwidth_gbps
    efficiency = capacity.efficiency[execution.runtime]
    return max(compute_ns, memory_ns) / efficiency + 1_000 * capacity.overhead_us


def token_ns(capacity: Capacity, cost: TokenCost, execution: Execution) -> float:
    """The same for an inference of a language model, whose cache is read and written too."""
    compute_ns = 2 * cost.macs / capacity.peak_gflops
    memory_ns = cost.moved_bytes / capacity.bandwidth_gbps
    efficiency = capacity.efficiency[execution.runtime]
    return max(compute_ns, memory_ns) / efficiency + 1_000 * capacity.overhead_us


def memory_bytes(macs: int, parameters: int, execution: Execution) -> int:
    """A plausible size: the weights, and activations that grow with the batch.

    Networks of the study have one activation for about 100 MACs; the figure has no other meaning.
    """
    size_bytes = WEIGHT_BYTES[execution.precision]
    return int(size_bytes * parameters) + int(size_bytes * execution.batch * macs) // 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one repeat takes.

    Attributes:
        sample_ns: one inference, or one step of `generate`.
        prompt_ns: the prompt before the steps; `None` for all other workloads.
        weight_bytes: read once, while the model is loaded.
    """

    sample_ns: float
    prompt_ns: float | None
    memory_bytes: int
    weight_bytes: int


def work_of(task: MeasureTask, capacity: Capacity) -> Work | None:
    """The work of a task; `None` if the cost of its model is unknown."""
    execution = task.execution
    if task.token_costs:
        *prompts, sample = task.token_costs
        return Work(
            sample_ns=token_ns(capacity, sample, execution),
            prompt_ns=token_ns(capacity, prompts[0], execution) if prompts else None,
            memory_bytes=sample.weight_bytes + sample.state_bytes,
            weight_bytes=sample.weight_bytes,
        )
    if task.macs_and_parameters is None:
        return None
    macs, parameters = task.macs_and_parameters
    return Work(
        sample_ns=latency_ns(capacity, macs, parameters, execution),
        prompt_ns=None,
        memory_bytes=memory_bytes(macs, parameters, execution),
        weight_bytes=parameters * 4,
    )


# Samples of a simulated device, drawn with the stop rules of real ones.

_WITHIN = 0.2
"""Noise within one process relative to noise between processes: see the unit of replication."""
_HEATING_S = 10.0
"""Phones need from seconds to minutes; shorter than a long repeat, so that it can be seen."""


def heated(heat: float, computed_ns: float) -> float:
    """The latency of a device that has computed this long, relative to a cool one."""
    return 1 - heat * math.expm1(-computed_ns / (_HEATING_S * NS_PER_S))


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """The drawn times of one repeat.

    Attributes:
        first_ns: one run without noise within the process: of the prompt, where there is one.
        run_ns: what one run of the warm-up takes.
        judged_ns: what the flags judge: the samples, or medians of whole sequences.
        sustained_ns: all runs together, if the policy has a `min_time_s`.
        prompts_ns: `None` without a prompt.
        steps: of one sequence; `None` without a prompt.
    """

    first_ns: float
    run_ns: float
    samples_ns: tuple[int, ...]
    judged_ns: tuple[int, ...]
    stop_reason: str
    sustained_ns: int | None = None
    prompts_ns: tuple[int, ...] | None = None
    steps: int | None = None


def draw(task: MeasureTask, work: Work, options: SimulatedOptions, rng: random.Random) -> Drawn:
    """Draws one repeat: one factor for the process, and noise within it."""
    process = rng.lognormvariate(0.0, options.noise)
    sample_ns = work.sample_ns * process
    steps = task.execution.workload.steps
    if work.prompt_ns is not None and steps is not None:
        phases = _DrawnModel(work.prompt_ns * process, sample_ns, options, rng)
        return _draw_sequences(phases, steps, task.policy)
    if task.policy.min_time_s > 0:
        return _draw_long(sample_ns, task.policy.min_time_s, options, rng)
    samples, reason = _samples(task.policy, sample_ns, options, rng)
    return Drawn(
        first_ns=sample_ns,
        run_ns=sample_ns,
        samples_ns=samples,
        judged_ns=samples,
        stop_reason=reason,
    )


def _draw_long(
    sample_ns: float, min_time_s: float, options: SimulatedOptions, rng: random.Random
) -> Drawn:
    """Back-to-back runs on a device that gets hot, until the time is over."""
    now_ns = 0

    def run() -> None:
        nonlocal now_ns
        grown = heated(options.heat, now_ns)
        noise = rng.lognormvariate(0.0, options.noise * _WITHIN)
        now_ns += max(round(sample_ns * grown * noise), 1)

    found = time_for(run, lambda: now_ns, min_time_s)
    return Drawn(
        first_ns=sample_ns,
        run_ns=sample_ns,
        samples_ns=found.runs.samples_ns,
        judged_ns=found.runs.samples_ns,
        stop_reason=found.runs.stop_reason,
        sustained_ns=found.wall_ns,
    )


def _draw_sequences(model: "_DrawnModel", steps: int, policy: MeasurePolicy) -> Drawn:
    timed = time_sequences(model, steps, model.clock, sequence_policy(policy, steps))
    return Drawn(
        first_ns=model.prompt_ns,
        run_ns=model.prompt_ns + steps * model.step_ns,
        samples_ns=timed.steps_ns,
        judged_ns=timed.medians_ns,
        stop_reason=timed.stop_reason,
        prompts_ns=timed.prompts_ns,
        steps=steps,
    )


class _DrawnModel:
    """A decoder whose runs only advance a clock; it fulfils `TwoPhases`."""

    def __init__(
        self, prompt_ns: float, step_ns: float, options: SimulatedOptions, rng: random.Random
    ) -> None:
        self.prompt_ns, self.step_ns = prompt_ns, step_ns
        self._options, self._rng = options, rng
        self._now_ns = 0

    def clock(self) -> int:
        return self._now_ns

    def run(self) -> None:
        self._pass(self.prompt_ns)

    def step(self) -> None:
        self._pass(self.step_ns)

    def _pass(self, ns: float) -> None:
        grown = heated(self._options.heat, self._now_ns)
        noise = self._rng.lognormvariate(0.0, self._options.noise * _WITHIN)
        self._now_ns += max(round(ns * grown * noise), 1)


def _samples(
    policy: MeasurePolicy, process_ns: float, options: SimulatedOptions, rng: random.Random
) -> tuple[tuple[int, ...], str]:
    """Single runs on a device that gets hot."""
    rule = HalfWidthRule(policy=policy)
    sigma = options.noise * _WITHIN
    budget_ns = policy.max_time_s * NS_PER_S
    samples: list[int] = []
    elapsed_ns = 0
    for point in rule.check_points():
        while len(samples) < point:
            grown = heated(options.heat, elapsed_ns)
            samples.append(max(round(process_ns * grown * rng.lognormvariate(0.0, sigma)), 1))
            elapsed_ns += samples[-1]
            if elapsed_ns >= budget_ns:
                return tuple(samples), "max_time"
        if rule.is_enough(samples):
            return tuple(samples), "half_width"
    return tuple(samples), "max_samples"


_COLD_FACTOR = 3
"""First inference relative to later ones."""
_POLL_S = 0.05


class SimulatedAgent:
    """The `simulated` device kind; its options are those of `SimulatedOptions`.

    A crash or a loss is drawn from the seeds and the task's id. Another attempt has another id, so
    it may succeed.
    """

    def __init__(self, options: DeviceOptions) -> None:
        self._options = read_options(options)
        self._capacity = capacity_of(self._options)

    def probe(self) -> DeviceFacts:
        """Describes the device."""
        return DeviceFacts(
            device_model=self._options.device_model,
            tier=Tier(self._options.tier),
            origin=Origin.SIMULATED,
            os="simulated",
            arch="simulated",
            memory_bytes=self._capacity.memory_bytes,
            extra=(
                ("bandwidth_gbps", self._capacity.bandwidth_gbps),
                ("overhead_us", self._capacity.overhead_us),
                ("peak_gflops", self._capacity.peak_gflops),
            ),
        )

    def why_unsupported(self, execution: Execution) -> str | None:
        """Accepts any backend and option, because no model is executed."""
        if execution.runtime not in self._capacity.efficiency:
            return f"a simulated device has no figures for the runtime {execution.runtime}"
        if execution.threads < 1 or execution.batch < 1:
            return "threads and batch must be at least 1"
        return execution.workload.why_no_step

    def longest_s(self, task: MeasureTask) -> float:
        """The longest time that `measure` may take, in seconds."""
        return task.timeout_s

    def measure(self, task: MeasureTask, stop_requested: StopRequested = never_stop) -> Measurement:
        """Computes one repeat; no model is executed, and the artifact is not opened."""
        started = utc_now()
        rng = random.Random(f"{self._options!r}/{task.task_id}/{task.seed}")  # noqa: S311 - no secret
        failure = _wait(self._options.duration_s, stop_requested) or _draw_fault(self._options, rng)
        reason = self.why_unsupported(task.execution)
        if reason is not None:
            failure = _unsupported(reason, "change the cell's execution")
        work = work_of(task, self._capacity)
        if work is None:
            failure = failure or _unsupported(
                "a simulated device needs MACs and parameters of a model, but they are unknown",
                "add macs and parameters to the model's card",
            )
        else:
            failure = failure or self._too_large(work.memory_bytes)
            if failure is None:
                return self._simulate(task, work, rng, started)
        return failed(task.task_id, failure, Origin.SIMULATED, started)

    def infer(self, task: InferTask, stop_requested: StopRequested = never_stop) -> Failure | None:
        """Runs the file on this host's CPU, which computes the same outputs."""
        return infer_in_worker(task, stop_requested)

    def _too_large(self, needed_bytes: int) -> Failure | None:
        most = self._capacity.memory_bytes
        if needed_bytes <= most:
            return None
        return Failure(
            kind=ErrorKind.OUT_OF_MEMORY,
            message=f"the model needs {needed_bytes:,} bytes; the device has {most:,}",
            remedy="raise the device's option memory_bytes, or use a smaller batch",
            is_transient=False,
            stage="load",
        )

    def _simulate(
        self, task: MeasureTask, work: Work, rng: random.Random, started: str
    ) -> Measurement:
        drawn = draw(task, work, self._options, rng)
        policy = task.policy if drawn.steps is None else sequence_policy(task.policy, drawn.steps)
        warmup_runs = max(policy.min_warmup_runs, 1)
        seen = Seen(
            samples_ns=drawn.judged_ns,
            observed_ns=sum(drawn.samples_ns) + sum(drawn.prompts_ns or ()),
        )
        return Measurement(
            task_id=task.task_id,
            status=Status.OK,
            origin=Origin.SIMULATED,
            sample_kind=SampleKind.PER_INFERENCE if drawn.steps is None else SampleKind.PER_TOKEN,
            load_ns=round(work.weight_bytes / self._capacity.bandwidth_gbps),
            first_inference_ns=round(_COLD_FACTOR * drawn.first_ns),
            warmup_ns=round(warmup_runs * drawn.run_ns),
            warmup_runs=warmup_runs,
            samples_ns=drawn.samples_ns,
            ttft_samples_ns=drawn.prompts_ns,
            stop_reason=drawn.stop_reason,
            sustained_ns=drawn.sustained_ns,
            memory_metric=MemoryMetric.SIMULATED,
            baseline_memory_bytes=0,
            load_peak_memory_bytes=work.memory_bytes,
            run_peak_memory_bytes=work.memory_bytes,
            worker=WorkerFacts(
                runtime_version="simulated", python_version=platform.python_version()
            ),
            flags=judge(seen, policy),
            started_utc=started,
            finished_utc=utc_now(),
        )


def _draw_fault(options: SimulatedOptions, rng: random.Random) -> Failure | None:
    drawn = rng.random()
    if drawn >= options.crash_rate + options.loss_rate:
        return None
    if drawn >= options.crash_rate:
        return Failure(
            kind=ErrorKind.DEVICE_LOST,
            message="the simulated device does not answer",
            remedy="set the device's loss_rate to 0",
            is_transient=True,
            stage="start",
        )
    return Failure(
        kind=ErrorKind.CRASHED,
        message="simulated crash",
        remedy="set the device's crash_rate to 0",
        is_transient=False,
        stage="timed",
    )


def _wait(duration_s: float, stop_requested: StopRequested) -> Failure | None:
    deadline_ns = time.perf_counter_ns() + int(duration_s * NS_PER_S)
    while not stop_requested():
        left_s = (deadline_ns - time.perf_counter_ns()) / NS_PER_S
        if left_s <= 0:
            return None
        time.sleep(min(left_s, _POLL_S))
    return interrupted()


def _unsupported(message: str, remedy: str) -> Failure:
    return Failure(
        kind=ErrorKind.UNSUPPORTED,
        message=message,
        remedy=remedy,
        is_transient=False,
        stage="start",
    )
