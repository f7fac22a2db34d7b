"""The agents of one host and their running tasks; the inline executor and hosts use it."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from time import perf_counter

from fleetrank.device_agents.contract.agent import Agent, DeviceFacts, RoundAgent
from fleetrank.device_agents.contract.failures import failure_from_error, interrupted
from fleetrank.device_agents.contract.kind import HostShare
from fleetrank.device_agents.contract.measurement import Failure, Measurement, failed
from fleetrank.device_agents.contract.task import MeasureTask
from fleetrank.device_agents.errors import (
    HOST_PATIENCE_S,
    NotFitError,
    TransientError,
    host_in_use,
)
from fleetrank.device_agents.registry import create_agent
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.lease import host_holder, host_lease
from fleetrank.foundation.reading import ReadingWatch
from fleetrank.foundation.vocabulary import ErrorKind, Flag
from fleetrank.orchestrator.dispatch.host.gathering import Rounds
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
    finish: threading.Event = field(default_factory=threading.Event)
    deadline_s: float | None = None


class LocalDevices:
    """Drives the devices of one host. Every method blocks; call it from a separate thread."""

    def __init__(self) -> None:
        self._agents: dict[DeviceSpec, Agent] = {}
        self._turns: dict[str, threading.Lock] = {}
        self._users: dict[str, str] = {}
        self._running: dict[str, _Running] = {}
        self._rounds = Rounds()
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

        A device runs one task at a time, or the tasks of one round, each of which another thread
        brings. A task of a second sweep waits, and a task waits while another process has the lease
        of the host. Time limits do not include waiting. After some seconds of it the answer is the
        failure of a device that is not fit yet, with the reason: the same task is sent again.
        """
        asked_s = perf_counter()
        running = _Running(stop=threading.Event())
        with self._lock:
            self._running[task.task_id] = running
        try:
            return self._rounds.measure(
                task, lambda tasks: self._measure_together(spec, tasks, running)
            )
        except NotFitError as error:
            found = failed(task.task_id, failure_of(error), spec.origin)
            return replace(found, waited_s=perf_counter() - asked_s)
        except Exception as error:
            return failed(task.task_id, failure_of(error), spec.origin)
        finally:
            with self._lock:
                del self._running[task.task_id]

    def _measure_together(
        self, spec: DeviceSpec, tasks: Sequence[MeasureTask], running: _Running
    ) -> Sequence[Measurement]:
        asked_s = perf_counter()
        with self._turn(spec, tasks[0], running) as is_held:
            if not is_held:
                return [failed(task.task_id, interrupted(), spec.origin) for task in tasks]
            agent = self._agent(spec)
            watch = ReadingWatch() if spec.share is HostShare.ALONE else None
            began_s = perf_counter()
            running.deadline_s = began_s + sum(map(agent.longest_s, tasks))
            if tasks[0].blocks is not None and isinstance(agent, RoundAgent):
                found = agent.measure_round(tasks, running.stop.is_set, running.finish.is_set)
            else:
                found = [agent.measure(task, running.stop.is_set) for task in tasks]
            is_beside = watch is not None and watch.has_seen()
        beside = (Flag.BESIDE_READING,) if is_beside else ()
        return [
            replace(one, waited_s=began_s - asked_s, flags=(*one.flags, *beside)) for one in found
        ]

    def overdue(self, margin_s: float) -> Sequence[str]:
        """Tasks whose deadline passed more than `margin_s` ago: their agent hangs."""
        late_s = perf_counter() - margin_s
        with self._lock:
            return [
                task_id
                for task_id, running in self._running.items()
                if running.deadline_s is not None and running.deadline_s < late_s
            ]

    def finish_rounds(self, sweep_id: str | None = None) -> None:
        """Ends running rounds after their current blocks, of one sweep or (`None`) of all.

        Tasks that wait for their device or for the lease of the host end at once.
        """
        with self._lock:
            for task_id, running in self._running.items():
                if sweep_id is None or sweep_of(task_id) == sweep_id:
                    running.finish.set()

    def interrupt(self, sweep_id: str | None = None) -> None:
        """Asks running tasks to end, of one sweep or (`None`) of all; later tasks still run."""
        with self._lock:
            for task_id, running in self._running.items():
                if sweep_id is None or sweep_of(task_id) == sweep_id:
                    running.stop.set()

    @contextmanager
    def _turn(self, spec: DeviceSpec, task: MeasureTask, running: _Running) -> Iterator[bool]:
        """Holds the device and the host's lease for one task; false if stopped before that.

        What only waits has nothing to finish, so the first request to stop ends it.

        Raises:
            NotFitError: another sweep still has the device or the host.
        """
        until_s = perf_counter() + HOST_PATIENCE_S

        def is_stopped() -> bool:
            return running.stop.is_set() or running.finish.is_set()

        def is_over() -> bool:
            return is_stopped() or perf_counter() >= until_s

        with self._lock:
            turn = self._turns.setdefault(spec.name, threading.Lock())
        while not turn.acquire(timeout=_POLL_S):
            if is_over():
                yield _unless(is_stopped(), self._users.get(spec.name, ""))
                return
        try:
            sweep, now = sweep_of(task.task_id), datetime.now(UTC)
            self._users[spec.name] = f"sweep {sweep} (since {now.isoformat(timespec='seconds')})"
            if spec.share is HostShare.NONE:
                yield True
                return
            purpose = f"sweep {sweep}, which measures on this host"
            is_shared = spec.share is HostShare.BESIDE
            with host_lease(purpose, is_shared=is_shared, give_up=is_over) as is_held:
                yield is_held or _unless(is_stopped(), host_holder())
        finally:
            turn.release()

    def _agent(self, spec: DeviceSpec) -> Agent:
        if spec not in self._agents:
            self._agents[spec] = create_agent(spec.kind, dict(spec.options))
        return self._agents[spec]


def _unless(is_stopped: bool, what: str) -> bool:
    """False for a wait that was stopped.

    Raises:
        NotFitError: it was not; `what` has the device or the host.
    """
    if is_stopped:
        return False
    raise host_in_use(what)


def failure_of(error: Exception) -> Failure:
    """Turns an error of an agent, or an unexpected error, into the failure of the attempt."""
    if isinstance(error, NotFitError):
        return failure_from_error(error, "start")
    if isinstance(error, FleetError):
        kind, message, remedy = ErrorKind.DEVICE_LOST, error.message, error.remedy
    else:
        kind, message = ErrorKind.INTERNAL, f"{type(error).__name__}: {error}"
        remedy = "this is a bug in fleetrank; run with `inline=true` and `debug=true` to see where"
    return Failure(
        kind=kind,
        message=message,
        remedy=remedy,
        is_transient=isinstance(error, TransientError),
        stage="start",
    )
