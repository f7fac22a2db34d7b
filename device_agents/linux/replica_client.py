"""Measures a set: several workers load the same file, and then run it at the same time.

The workers load and warm up one after the other. When all of them are warm, they start together and
run back to back for the stated time. A worker that fails ends the set as failed; what the others
measured is kept.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import replace

from fleetrank.device_agents.contract.agent import StopRequested, never_stop
from fleetrank.device_agents.contract.gpu_backends import GPU_BACKENDS
from fleetrank.device_agents.contract.measurement import Failure, Measurement, utc_now
from fleetrank.device_agents.contract.protocol import Turn
from fleetrank.device_agents.contract.replica_set import ReplicaRun, ReplicaSet, SetEnergy
from fleetrank.device_agents.contract.task import Execution, MeasureTask, ReplicaPolicy
from fleetrank.device_agents.flags import MAX_BUSY_SHARE, MAX_STEAL_SHARE
from fleetrank.device_agents.linux.conditions import read_conditions
from fleetrank.device_agents.linux.cores import read_siblings
from fleetrank.device_agents.linux.energy import CounterLooks, EnergySource
from fleetrank.device_agents.linux.worker_client import WORKER, Worker, measure_in_worker
from fleetrank.device_agents.linux.worker_process import anonymous_bytes
from fleetrank.foundation.core_use import CoreUse
from fleetrank.foundation.supervised_child import POLL_S
from fleetrank.foundation.units import BYTES_PER_MIB, NS_PER_S
from fleetrank.foundation.vocabulary import ErrorKind, Flag, Origin, Status

_LEAST_ENERGY_SHARE = 0.5
"""Of the common run: a counter that was seen for less of it says too little about all of it."""


def why_not_replicated(execution: Execution) -> str | None:
    """Says why this cannot run in several processes at once, or `None` if it can."""
    if execution.workload.steps is None:
        return None
    return "generate is a prompt and its steps: run prefill and decode in its place"


def longest_s(task: MeasureTask) -> float:
    """The longest time of a repeat, or of a set: its processes warm up one after another."""
    policy = task.execution.replicas
    return task.limits.timeout_s * (1 if policy is None else policy.count)


def core_use(
    cpus: Sequence[Sequence[int]] | None, siblings: Mapping[int, Sequence[int]]
) -> CoreUse:
    """How processes that are pinned to these CPUs share the cores of their host.

    Args:
        cpus: of each process; `None` if no process is pinned.
        siblings: CPU to all CPUs of its core, as `conditions.read_siblings` gives them.
    """
    if cpus is None:
        return CoreUse.FREE
    if _overlap(cpus):
        return CoreUse.SHARED
    cores = [{min(siblings.get(cpu) or (cpu,)) for cpu in one} for one in cpus]
    return CoreUse.SIBLINGS if _overlap(cores) else CoreUse.OWN


def _overlap(parts: Sequence[Iterable[int]]) -> bool:
    every = [number for part in parts for number in part]
    return len(set(every)) < len(every)


_OF_THE_FIRST = ("memory_metric", "conditions_before", "conditions_after", "worker")


def measure_in_workers(
    task: MeasureTask,
    stop_requested: StopRequested = never_stop,
    *,
    command: Sequence[str] = WORKER,
    source: Callable[[], EnergySource | None] = lambda: None,
) -> Measurement:
    """Measures one repeat, or the set of its `replicas`; never raises for a failure of a worker.

    Args:
        task: its time limit is that of each process.
        stop_requested: ends all processes; the set becomes `interrupted`.
        command: starts a worker.
        source: opens the energy counter of the device, for a set; `None` counts none.

    Returns:
        Of a set a measurement with `replicas`, and without other samples. The host's conditions
        are those that the first measured process saw.
    """
    policy = task.execution.replicas
    if policy is None:
        return measure_in_worker(task, stop_requested, command=command)
    meter = _Meter(source() if task.policy.energy_s > 0 else None, policy.run_s)
    started = utc_now()
    workers = [Worker(one, stop_requested) for one in _tasks(task, policy)]
    with ExitStack() as stack:
        failure = _warm_up(workers, stack, command)
        if failure is None:
            _run_together(workers, meter)
            failure = _first_failure(workers)
    numbered = enumerate(workers, start=1)
    found = ReplicaSet(
        count=policy.count,
        run_s=policy.run_s,
        runs=tuple(_run_of(number, one, policy) for number, one in numbered if one.has_ended),
        core_use=_core_use_of(task, policy),
        energy=meter.energy(),
    )
    measured = (one.measurement for one in workers if one.measurement.failure is None)
    first = next(measured, workers[0].measurement)
    return Measurement(
        task_id=task.task_id,
        status=Status.OK if failure is None else Status.FAILED,
        origin=Origin.MEASURED,
        failure=failure,
        **{name: getattr(first, name) for name in _OF_THE_FIRST},
        flags=tuple(flag for flag in Flag if any(flag in run.flags for run in found.runs)),
        replicas=found,
        started_utc=started,
        finished_utc=utc_now(),
    )


def _tasks(task: MeasureTask, policy: ReplicaPolicy) -> list[MeasureTask]:
    """The task of each worker. Energy is counted once for the device, so no worker counts it."""
    timing = replace(task.policy, min_time_s=policy.run_s, energy_s=0.0)
    return [
        replace(
            task,
            policy=timing,
            execution=replace(
                task.execution, affinity=None if policy.cpus is None else policy.cpus[number]
            ),
            # The first worker looks for other users of a GPU; the next ones would find the first.
            allows_shared_gpu=task.allows_shared_gpu or number > 0,
        )
        for number in range(policy.count)
    ]


def _core_use_of(task: MeasureTask, policy: ReplicaPolicy) -> CoreUse | None:
    if task.execution.backend in GPU_BACKENDS:
        return None
    return core_use(policy.cpus, read_siblings())


def _warm_up(workers: Sequence[Worker], stack: ExitStack, command: Sequence[str]) -> Failure | None:
    """Starts the workers one after the other; returns why they cannot start together."""
    for number, worker in enumerate(workers, start=1):
        worker.start(stack, command)
        if not worker.is_waiting:
            return _numbered(worker.measurement.failure, number, len(workers))
        if number == 1 and (failure := _why_no_room(worker, len(workers) - 1)) is not None:
            return failure
    return None


def _why_no_room(first: Worker, n_more: int) -> Failure | None:
    """Why no more copies fit, by the memory that the first one does not share with others.

    A host without free memory would slow down or kill processes that have nothing to do with it.
    """
    each, free = anonymous_bytes(first.pid), read_conditions((), None).available_memory_bytes
    if each is None or free is None or n_more * each <= free:
        return None
    return Failure(
        kind=ErrorKind.OUT_OF_MEMORY,
        message=(
            f"{n_more} more processes of {each / BYTES_PER_MIB:,.0f} MiB each do not fit in the "
            f"{free / BYTES_PER_MIB:,.0f} MiB that are free"
        ),
        remedy=f"ask for {1 + free // each} processes at most, or free memory",
        is_transient=False,
        stage="warmup",
    )


def _run_together(workers: Sequence[Worker], meter: "_Meter") -> None:
    """Starts all workers and waits for their ends; each is read by its own thread.

    A worker whose output is not read cannot end, so a hanging one must not keep the others waiting.
    """
    with ThreadPoolExecutor(len(workers)) as pool:
        meter.begin()
        for worker in workers:
            worker.tell(Turn.START)
        pending = {pool.submit(worker.hear) for worker in workers}
        while pending:
            done, pending = wait(pending, timeout=POLL_S)
            for ended in done:
                ended.result()
            meter.look()


def _first_failure(workers: Sequence[Worker]) -> Failure | None:
    for number, worker in enumerate(workers, start=1):
        if worker.measurement.failure is not None:
            return _numbered(worker.measurement.failure, number, len(workers))
    return None


def _numbered(failure: Failure | None, number: int, count: int) -> Failure | None:
    if failure is None:
        return None
    return replace(failure, message=f"process {number} of {count}: {failure.message}")


def _run_of(number: int, worker: Worker, policy: ReplicaPolicy) -> ReplicaRun:
    found, failure = worker.measurement, worker.measurement.failure
    given = None if policy.cpus is None else policy.cpus[number - 1]
    if failure is not None or not found.blocks or found.sustained_ns is None:
        return ReplicaRun(
            replica=number,
            given_cpus=given,
            error_kind=ErrorKind.BAD_OUTPUT if failure is None else failure.kind,
            error_message="it did not wait for the others" if failure is None else failure.message,
        )
    start_ns = found.blocks[0].start_ns
    return ReplicaRun(
        replica=number,
        given_cpus=given,
        cpus=None if found.worker is None else found.worker.affinity,
        start_ns=start_ns,
        end_ns=start_ns + found.sustained_ns,
        samples_ns=found.samples_ns,
        run_peak_memory_bytes=found.run_peak_memory_bytes,
        process_memory_bytes=found.process_memory_bytes,
        involuntary_switches=None if found.worker is None else found.worker.involuntary_switches,
        flags=own_flags(found, policy.count - 1),
    )


def own_flags(found: Measurement, n_others: int) -> tuple[Flag, ...]:
    """The flags of one process, without those that the other processes of its set raise.

    During the run their load counts as that of others. Before it they sleep, so the load that was
    seen then is not theirs.
    """
    before, after = found.conditions_before, found.conditions_after
    seen = [one for one in (before, after) if one is not None]
    is_busy = (before is not None and (before.busy_share or 0) > MAX_BUSY_SHARE) or any(
        (one.steal_share or 0) > MAX_STEAL_SHARE for one in seen
    )
    has_company = any((one.other_processes or 0) > n_others for one in seen)
    dropped = {Flag.BUSY_HOST: is_busy, Flag.SHARED_DEVICE: has_company}
    return tuple(flag for flag in found.flags if dropped.get(flag, True))


class _Meter:
    """Looks at the device's energy counter during the common run."""

    def __init__(self, source: EnergySource | None, run_s: float) -> None:
        self._source, self._run_s = source, run_s
        self._looks: CounterLooks | None = None
        self._n_looks = 0
        self._end_ns = 0

    def begin(self) -> None:
        """Reads the counter before the start."""
        reading = None if self._source is None else self._source.read()
        now_ns = time.perf_counter_ns()
        self._end_ns = now_ns + int(self._run_s * NS_PER_S)
        if reading is not None:
            self._looks = CounterLooks(now_ns, reading)

    def look(self) -> None:
        """Reads the counter again; after the common run it does nothing."""
        if self._source is None or self._looks is None:
            return
        reading, now_ns = self._source.read(), time.perf_counter_ns()
        if reading is None:
            self._looks = None
        elif now_ns <= self._end_ns:
            self._n_looks += 1
            self._looks.add(now_ns, reading, self._n_looks)

    def energy(self) -> SetEnergy | None:
        """What it saw; `None` without a counter, or with too few steps of it."""
        if self._source is None or self._looks is None:
            return None
        window = self._looks.window(_LEAST_ENERGY_SHARE * self._run_s)
        if not window.is_enough:
            return None
        return SetEnergy(
            method=self._source.method,
            mj=window.mj,
            window_ns=window.ns,
            counter_steps=window.steps,
        )
