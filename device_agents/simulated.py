"""A simulated device, for tests and for trying out an analysis.

Its results depend only on its options, the task and the seeds.
"""

import platform
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from types import MappingProxyType

from fleetrank.device_agents.contract.agent import (
    DeviceFacts,
    StopRequested,
    never_stop,
    read_fields,
)
from fleetrank.device_agents.contract.failures import interrupted
from fleetrank.device_agents.contract.kind import DeviceOptions
from fleetrank.device_agents.contract.measurement import (
    Failure,
    Measurement,
    WorkerFacts,
    failed,
    utc_now,
)
from fleetrank.device_agents.contract.task import Execution, InferTask, MeasureTask
from fleetrank.device_agents.errors import PermanentError
from fleetrank.device_agents.flags import Seen, judge
from fleetrank.device_agents.linux.worker_client import infer_in_worker
from fleetrank.device_agents.simulated_draws import draw
from fleetrank.device_agents.simulated_options import SimulatedOptions
from fleetrank.device_agents.simulated_roofline import Capacity, RepeatWork, work_of
from fleetrank.device_agents.timed_sequences import sequence_policy
from fleetrank.foundation.units import NS_PER_S
from fleetrank.foundation.vocabulary import (
    ErrorKind,
    MemoryMetric,
    Origin,
    Runtime,
    SampleKind,
    Status,
    Tier,
)

_GIB = 2**30
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
        return task.limits.timeout_s

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
        self, task: MeasureTask, work: RepeatWork, rng: random.Random, started: str
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
