"""The agents of one host and their running tasks; the inline executor and hosts use it."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

from fleetrank.device_agents.contract.agent import Agent, DeviceFacts
from fleetrank.device_agents.contract.failures import interrupted
from fleetrank.device_agents.contract.kind import HostShare
from fleetrank.device_agents.contract.measurement import Failure, Measurement, failed
from fleetrank.device_agents.contract.task import MeasureTask
from fleetrank.device_agents.errors import TransientError
from fleetrank.device_agents.registry import create_agent
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.lease import host_lease
from fleetrank.foundation.vocabulary import ErrorKind
from fleetrank.orchestrator.identity.cells import DeviceSpec
from fleetrank.orchestrator.identity.keys import sweep_of

_MOST_PROBES = 32
"""Probes in parallel: a phone that hangs takes half a minute, and threads are cheap."""
_POLL_S = 0.1
"""How often a task that waits for its device checks whether it was cancelled."""


@dataclass(slots=True)
class _Running:
    """A task in flight; `deadline_s` is `None` while it waits for its device."""

    stop: threading.Event
    deadline_s: float | None = None


class LocalDevices:
    """Drives the devices of one host. Every method blocks; call it from a separate thread."""

    def __init__(self) -> None:
        self._agents: dict[DeviceSpec, Agent] = {}
        self._turns: dict[str, threading.Lock] = {}
        self._running: dict[str, _Running] = {}
        self._lock = threading.Lock()

    def facts(self, specs: Sequence[DeviceSpec]) -> Mapping[str, DeviceFacts]:
        """Probes devices in parallel; a device that does not answer is left out."""
        with ThreadPoolExecutor(max_workers=max(1, min(len(specs), _MOST_PROBES))) as pool:
            answers = list(pool.map(self.probe, specs))
        return {
            spec.name: answer
            for spec, answer in zip(specs, answers, strict=True)
            if isinstance(answer, DeviceFacts)
        }

    def probe(self, spec: DeviceSpec) -> DeviceFacts | Failure:
        """Probes a device; returns its facts or the failure."""
        try:
            return self._agent(spec).probe()
        except Exception as error:
            return failure_of(error)

    def measure(self, spec: DeviceSpec, task: MeasureTask) -> Measurement:
        """Measures one repeat; an unexpected error of an agent becomes a failed measurement too.

        A device runs one task at a time. A task of a second sweep waits, and a task waits while
        another process has the lease of the host. Time limits do not include waiting.
        """
        running = _Running(stop=threading.Event())
        with self._lock:
            self._running[task.task_id] = running
        try:
            with self._turn(spec, task, running.stop) as is_held:
                if not is_held:
                    return failed(task.task_id, interrupted(), spec.origin)
                agent = self._agent(spec)
                running.deadline_s = perf_counter() + agent.longest_s(task)
                return agent.measure(task, running.stop.is_set)
        except Exception as error:
            return failed(task.task_id, failure_of(error), spec.origin)
        finally:
            with self._lock:
                del self._running[task.task_id]

    def overdue(self, margin_s: float) -> Sequence[str]:
        """Tasks whose deadline passed more than `margin_s` ago: their agent hangs."""
        late_s = perf_counter() - margin_s
        with self._lock:
            return [
                task_id
                for task_id, running in self._running.items()
                if running.deadline_s is not None and running.deadline_s < late_s
            ]

    def interrupt(self, sweep_id: str | None = None) -> None:
        """Asks running tasks to end, of one sweep or (`None`) of all; later tasks still run."""
        with self._lock:
            for task_id, running in self._running.items():
                if sweep_id is None or sweep_of(task_id) == sweep_id:
                    running.stop.set()

    @contextmanager
    def _turn(self, spec: DeviceSpec, task: MeasureTask, stop: threading.Event) -> Iterator[bool]:
        """Holds the device and the host's lease for one task; false if stopped before that."""
        with self._lock:
            turn = self._turns.setdefault(spec.name, threading.Lock())
        while not turn.acquire(timeout=_POLL_S):
            if stop.is_set():
                yield False
                return
        try:
            if spec.share is HostShare.NONE:
                yield True
                return
            purpose = f"sweep {sweep_of(task.task_id)}, which measures on this host"
            is_shared = spec.share is HostShare.BESIDE
            with host_lease(purpose, is_shared=is_shared, give_up=stop.is_set) as is_held:
                yield is_held
        finally:
            turn.release()

    def _agent(self, spec: DeviceSpec) -> Agent:
        if spec not in self._agents:
            self._agents[spec] = create_agent(spec.kind, dict(spec.options))
        return self._agents[spec]


def failure_of(error: Exception) -> Failure:
    """Turns an error of an agent, or an unexpected error, into the failure of the attempt."""
    if isinstance(error, FleetError):
        kind, message, remedy = ErrorKind.DEVICE_LOST, error.message, error.remedy
    else:
        kind, message = ErrorKind.INTERNAL, f"{type(error).__name__}: {error}"
        remedy = "this is a bug in fleetrank; run with --inline --debug to see where"
    return Failure(
        kind=kind,
        message=message,
        remedy=remedy,
        is_transient=isinstance(error, TransientError),
        stage="start",
    )
