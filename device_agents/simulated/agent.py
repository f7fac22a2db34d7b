"""A simulated device, for tests and for trying out an analysis.

Its results depend only on its options, the task and the seeds.
"""

import platform
import random
import time
from dataclasses import dataclass

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
from fleetrank.device_agents.host.worker_client import infer_in_worker
from fleetrank.device_agents.timing.flags import Seen, judge
from fleetrank.device_agents.timing.timing import HalfWidthRule
from fleetrank.foundation.vocabulary import (
    ErrorKind,
    MemoryMetric,
    Origin,
    Precision,
    Status,
    Tier,
)

BYTES_PER_VALUE = {Precision.FP32: 4, Precision.FP16: 2, Precision.BF16: 2, Precision.INT8: 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedOptions:
    """The properties of a simulated device.

    Attributes:
        noise: relative sigma between processes; samples of one process have a fifth of it.
        drift: relative growth of the latency from the first to the last sample.
        crash_rate: share of tasks that end with a crash. The rates of timeouts and of transient
            losses have the same meaning.
        duration_s: real time a repeat takes.
    """

    tier: str = "cpu"
    peak_gflops: float = 100.0
    bandwidth_gbps: float = 20.0
    overhead_us: float = 50.0
    noise: float = 0.0
    drift: float = 0.0
    seed: int = 0
    device_model: str = "simulated"
    crash_rate: float = 0.0
    timeout_rate: float = 0.0
    transient_rate: float = 0.0
    duration_s: float = 0.0


_RATES = ("crash_rate", "timeout_rate", "transient_rate")
_POSITIVE = ("peak_gflops", "bandwidth_gbps")
_NOT_NEGATIVE = ("overhead_us", "noise", "seed", "duration_s", *_RATES)


def read_options(options: DeviceOptions) -> SimulatedOptions:
    """Checks the options of a device file.

    Raises:
        PermanentError: an unknown name, a wrong type, or a value out of range.
    """
    read = read_fields(SimulatedOptions, "simulated", options)
    _check_ranges(read)
    return read


def _check_ranges(read: SimulatedOptions) -> None:
    if read.tier not in list(Tier):
        raise PermanentError(f"unknown tier {read.tier!r}", f"use one of: {', '.join(Tier)}")
    for name in _POSITIVE:
        if not getattr(read, name) > 0:
            raise PermanentError(f"option {name} is {getattr(read, name)}", "it must be above 0")
    for name in _NOT_NEGATIVE:
        if not getattr(read, name) >= 0:
            raise PermanentError(f"option {name} is {getattr(read, name)}", "it must be at least 0")
    if not read.drift > -1:
        raise PermanentError(f"option drift is {read.drift}", "it must be above -1")
    if sum(getattr(read, name) for name in _RATES) > 1:
        raise PermanentError("fault rates must add up to at most 1", "lower the rates")


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Limits of a device: arithmetic in 10^9 operations a second, memory in 10^9 bytes a second.

    `overhead_us` is added to every inference, whatever its size.
    """

    peak_gflops: float
    bandwidth_gbps: float
    overhead_us: float

    def latency_ns(self, macs: int, parameters: int, execution: Execution) -> float:
        """Time of one inference: the larger of computing and reading the weights, plus overhead.

        Source: S. Williams, A. Waterman, D. Patterson, Roofline (CACM 52(4), 2009).
        """
        compute_ns = 2 * macs * execution.batch / self.peak_gflops
        memory_ns = parameters * BYTES_PER_VALUE[execution.precision] / self.bandwidth_gbps
        return max(compute_ns, memory_ns) + 1_000 * self.overhead_us


def memory_bytes(macs: int, parameters: int, execution: Execution) -> int:
    """A plausible size: the weights, and activations that grow with the batch.

    Networks of the study have one activation for about 100 MACs; the figure has no other meaning.
    """
    size = BYTES_PER_VALUE[execution.precision]
    return size * parameters + size * execution.batch * macs // 100


_WITHIN = 0.2
"""Noise within one process relative to noise between processes: see the unit of replication."""
_COLD_FACTOR = 3
"""First inference relative to later ones."""
_POLL_S = 0.05
_NS_PER_S = 1_000_000_000


class SimulatedAgent:
    """The `simulated` device kind; its options are those of `SimulatedOptions`.

    Faults are drawn from the seeds and the task's id. Another attempt has another id, so it may
    succeed.
    """

    def __init__(self, options: DeviceOptions) -> None:
        self._options = read_options(options)
        self._roofline = Roofline(
            peak_gflops=self._options.peak_gflops,
            bandwidth_gbps=self._options.bandwidth_gbps,
            overhead_us=self._options.overhead_us,
        )

    def probe(self) -> DeviceFacts:
        """Describes the device."""
        return DeviceFacts(
            device_model=self._options.device_model,
            tier=Tier(self._options.tier),
            origin=Origin.SIMULATED,
            os="simulated",
            arch="simulated",
            extra=(
                ("bandwidth_gbps", self._options.bandwidth_gbps),
                ("overhead_us", self._options.overhead_us),
                ("peak_gflops", self._options.peak_gflops),
            ),
        )

    def why_unsupported(self, execution: Execution) -> str | None:
        """Accepts any runtime, backend and option, because no model is executed."""
        if execution.threads < 1 or execution.batch < 1:
            return "threads and batch must be at least 1"
        return None

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
        hint = task.macs_and_parameters
        if failure is None and hint is not None:
            return self._simulate(task, hint, rng, started)
        failure = failure or _unsupported(
            "a simulated device needs MACs and parameters of a model, but they are unknown",
            "add macs and parameters to the model's card",
        )
        return failed(task.task_id, failure, Origin.SIMULATED, started)

    def infer(self, task: InferTask) -> Failure | None:
        """Runs the file on this host's CPU, which computes the same outputs."""
        return infer_in_worker(task)

    def _simulate(
        self, task: MeasureTask, hint: tuple[int, int], rng: random.Random, started: str
    ) -> Measurement:
        macs, parameters = hint
        exact_ns = self._roofline.latency_ns(macs, parameters, task.execution)
        process_ns = exact_ns * rng.lognormvariate(0.0, self._options.noise)
        samples, reason = self._samples(task, process_ns, rng)
        warmup_runs = max(task.policy.min_warmup_runs, 1)
        memory = memory_bytes(macs, parameters, task.execution)
        seen = Seen(
            samples_ns=samples,
            is_warmup_stable=True,
            involuntary_switches=None,
            niceness=None,
            before=None,
            after=None,
        )
        return Measurement(
            task_id=task.task_id,
            status=Status.OK,
            origin=Origin.SIMULATED,
            load_ns=round(parameters * 4 / self._options.bandwidth_gbps),
            first_inference_ns=round(_COLD_FACTOR * process_ns),
            warmup_ns=round(warmup_runs * process_ns),
            warmup_runs=warmup_runs,
            samples_ns=samples,
            stop_reason=reason,
            memory_metric=MemoryMetric.SIMULATED,
            baseline_memory_bytes=0,
            load_peak_memory_bytes=memory,
            run_peak_memory_bytes=memory,
            worker=WorkerFacts(
                runtime_version="simulated", python_version=platform.python_version()
            ),
            flags=judge(seen, task.policy),
            started_utc=started,
            finished_utc=utc_now(),
        )

    def _samples(
        self, task: MeasureTask, process_ns: float, rng: random.Random
    ) -> tuple[tuple[int, ...], str]:
        """Draws runs with the same stop rule as real ones, on a clock of the drawn times."""
        rule = HalfWidthRule(policy=task.policy)
        sigma = self._options.noise * _WITHIN
        budget_ns = task.policy.max_time_s * _NS_PER_S
        samples: list[int] = []
        elapsed_ns = 0
        for point in rule.check_points():
            while len(samples) < point:
                grown = 1 + self._options.drift * min(elapsed_ns / budget_ns, 1.0)
                samples.append(max(round(process_ns * grown * rng.lognormvariate(0.0, sigma)), 1))
                elapsed_ns += samples[-1]
                if elapsed_ns >= budget_ns:
                    return tuple(samples), "max_time"
            if rule.is_enough(samples):
                return tuple(samples), "half_width"
        return tuple(samples), "max_samples"


def _draw_fault(options: SimulatedOptions, rng: random.Random) -> Failure | None:
    drawn = rng.random()
    faults = (
        (options.crash_rate, ErrorKind.CRASHED, False),
        (options.timeout_rate, ErrorKind.TIMED_OUT, False),
        (options.transient_rate, ErrorKind.DEVICE_LOST, True),
    )
    for rate, kind, is_transient in faults:
        if drawn < rate:
            return Failure(
                kind=kind,
                message=f"simulated fault: {kind.value}",
                remedy="set the device's fault rates to 0",
                is_transient=is_transient,
                stage="timed",
            )
        drawn -= rate
    return None


def _wait(duration_s: float, stop_requested: StopRequested) -> Failure | None:
    deadline_ns = time.perf_counter_ns() + int(duration_s * _NS_PER_S)
    while not stop_requested():
        left_s = (deadline_ns - time.perf_counter_ns()) / _NS_PER_S
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
