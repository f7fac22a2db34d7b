"""An executor on Ray: one host actor carries tasks to the devices of its host."""

import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Self, TypeVar

from device_agents.types import DeviceFacts, Failure, InferTask, Measurement, MeasureTask
from device_agents.vocabulary import ErrorKind, Origin
from orchestrator.dispatch.device_bench import DeviceSpec
from orchestrator.dispatch.host_actor import HostActor
from orchestrator.dispatch.local_ray import local_ray
from orchestrator.errors import OrchestratorError
from orchestrator.translate import failure_measurement

if TYPE_CHECKING:
    import ray

T = TypeVar("T")
_log = logging.getLogger(__name__)

_ACTOR_NAME = "fleetrank-host"
_START_TIMEOUT_S = 120.0
"""Ray's first actor takes 0.4 s; a machine that swaps takes long."""
_PROBE_TIMEOUT_S = 30.0
_ALIVE_S = 5.0
"""The actor's event loop never blocks, so that it answers in milliseconds."""
_MARGIN_S = 60.0
"""A worker is killed at the task's time limit; an actor silent for so long after it hangs."""


@dataclass(frozen=True, slots=True)
class _Flight:
    """A task on its way: on which device, and when to ask after it."""

    device: str
    task_id: str
    deadline_s: float


class RayExecutor:
    """Carries tasks through a local Ray. The actor is named, restarted by Ray, and never retried.

    A call in flight when the actor dies may or may not have been executed; it comes back as
    `device_lost`, and the controller measures anew.
    """

    def __init__(self, specs: Sequence[DeviceSpec]) -> None:
        self._specs = tuple(specs)
        self._exits = contextlib.ExitStack()
        self._actor: ray.actor.ActorHandle | None = None
        self._facts: Mapping[str, DeviceFacts] = {}
        self._flights: dict[ray.ObjectRef, _Flight] = {}

    def __enter__(self) -> Self:
        import ray

        self._exits.enter_context(local_ray())
        try:
            self._actor = self._start_actor()
            self._facts = ray.get(self._actor.facts.remote(), timeout=_START_TIMEOUT_S)
        except ray.exceptions.RayError as error:
            self._exits.close()
            raise OrchestratorError(
                f"the host actor did not start: {error}",
                "see /tmp/ray/session_latest/logs, or use --inline",
            ) from error
        except BaseException:
            self._exits.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.interrupt()
        self._actor = None
        self._flights.clear()
        self._exits.close()

    def facts(self) -> Mapping[str, DeviceFacts]:
        """What each device is, probed when entering; one that did not answer is missing."""
        return self._facts

    def submit(self, device: str, task: MeasureTask) -> None:
        """Sends a task to the actor; returns at once."""
        reference = self._entered().measure.remote(device, task)
        deadline_s = perf_counter() + task.timeout_s + _MARGIN_S
        self._flights[reference] = _Flight(device, task.task_id, deadline_s)

    def poll(self, timeout_s: float) -> Sequence[Measurement]:
        """Waits for the first measurement and takes along what else is there."""
        import ray

        if not self._flights:
            time.sleep(timeout_s)
            return []
        # Two calls: the first wakes with the first arrival, the second takes the whole batch.
        ready, _ = ray.wait(list(self._flights), num_returns=1, timeout=timeout_s)
        if ready:
            waiting = list(self._flights)
            ready, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0)
        arrived = [self._receive(reference, self._flights.pop(reference)) for reference in ready]
        return arrived + self._give_up_overdue()

    def infer(self, device: str, task: InferTask) -> Failure | None:
        """Runs an artifact over stored inputs on the device's host; waits."""
        reference = self._entered().infer.remote(device, task)
        answer: Failure | None = self._wait_for(reference, task.timeout_s + _MARGIN_S)
        return answer

    def probe(self, device: str) -> DeviceFacts | Failure:
        """Asks a device what it is; waits."""
        reference = self._entered().probe.remote(device)
        answer: DeviceFacts | Failure = self._wait_for(reference, _PROBE_TIMEOUT_S)
        return answer

    def interrupt(self) -> None:
        """Ends running tasks now."""
        if self._actor is not None:
            self._actor.interrupt.remote()

    def _start_actor(self) -> "ray.actor.ActorHandle":
        import ray

        actor_class = ray.remote(HostActor)
        return actor_class.options(
            name=_ACTOR_NAME,
            num_cpus=0,
            # A restarted actor is as good as new; a call is never made twice behind our back.
            max_restarts=-1,
            max_task_retries=0,
            max_concurrency=len(self._specs) + 100,
        ).remote(self._specs)

    def _receive(self, reference: "ray.ObjectRef", flight: _Flight) -> Measurement:
        import ray

        try:
            measurement: Measurement = ray.get(reference)
        except ray.exceptions.RayError as error:
            _log.info("%s was lost: %s", flight.task_id, error)
            return self._lost(flight, "the host actor died while it measured")
        return measurement

    def _give_up_overdue(self) -> list[Measurement]:
        """A hung actor is ended, so that Ray starts a new one; what it had comes back as lost."""
        import ray

        now_s = perf_counter()
        late = [ref for ref, flight in self._flights.items() if flight.deadline_s < now_s]
        overdue = [reference for reference in late if not self._has_time_left(reference)]
        if overdue and self._actor is not None:
            ray.kill(self._actor, no_restart=False)
        return [
            self._lost(self._flights.pop(reference), "the host actor does not answer")
            for reference in overdue
        ]

    def _has_time_left(self, reference: "ray.ObjectRef") -> bool:
        """Whether a late task only waits: for its host's lease, for a phone that cools down."""
        flight = self._flights[reference]
        question = self._entered().left_s.remote(flight.task_id)
        left_s: float | Failure = self._wait_for(question, _ALIVE_S)
        if isinstance(left_s, Failure) or left_s + _MARGIN_S <= 0:
            return False
        deadline_s = perf_counter() + left_s + _MARGIN_S
        self._flights[reference] = replace(flight, deadline_s=deadline_s)
        return True

    def _lost(self, flight: _Flight, message: str) -> Measurement:
        facts = self._facts.get(flight.device)
        origin = Origin.MEASURED if facts is None else facts.origin
        return failure_measurement(flight.task_id, _lost(message), origin)

    def _wait_for(self, reference: "ray.ObjectRef", timeout_s: float) -> T | Failure:
        import ray

        try:
            answer: T = ray.get(reference, timeout=timeout_s)
        except ray.exceptions.RayError as error:
            return _lost(f"the host actor did not answer: {error}")
        return answer

    def _entered(self) -> "ray.actor.ActorHandle":
        if self._actor is None:
            raise RuntimeError("the executor is used outside its `with` block")
        return self._actor


def _lost(message: str) -> Failure:
    return Failure(
        kind=ErrorKind.DEVICE_LOST,
        message=message,
        remedy="it is tried again; if that keeps failing, look into /tmp/ray/session_latest/logs",
        is_transient=True,
        stage="start",
    )
