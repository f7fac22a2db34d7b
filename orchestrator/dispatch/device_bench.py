"""The agents of one host and what they are busy with; the inline executor and the actor use it."""

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter

from device_agents.agent import Agent
from device_agents.errors import AgentError, TransientError
from device_agents.failures import interrupted
from device_agents.host_lease import host_lease
from device_agents.registry import create_agent
from device_agents.types import DeviceFacts, Failure, InferTask, Measurement, MeasureTask, Options
from device_agents.vocabulary import ErrorKind, Origin
from orchestrator.translate import failure_measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """What it takes to make a device's agent, on whatever host it hangs.

    Attributes:
        needs_quiet: measuring on it takes the lease of its host.
    """

    name: str
    kind: str
    options: Options = ()
    needs_quiet: bool = False


class DeviceBench:
    """Owns the devices of one host. Every method blocks; call it from a thread of its own."""

    def __init__(self, specs: tuple[DeviceSpec, ...]) -> None:
        self._agents: dict[str, Agent] = {
            spec.name: create_agent(spec.kind, dict(spec.options)) for spec in specs
        }
        self._facts: dict[str, DeviceFacts] = {}
        self._stops: dict[str, threading.Event] = {}
        self._stops_lock = threading.Lock()
        self._quiet = frozenset(spec.name for spec in specs if spec.needs_quiet)
        self._limits_s: dict[str, float] = {}
        self._deadlines_s: dict[str, float] = {}

    def facts(self) -> Mapping[str, DeviceFacts]:
        """Probes every device, side by side; one that does not answer is left out."""
        with ThreadPoolExecutor(max_workers=max(1, len(self._agents))) as pool:
            list(pool.map(self.probe, self._agents))
        return dict(self._facts)

    def probe(self, device: str) -> DeviceFacts | Failure:
        """Asks a device what it is, or learns why it cannot tell."""
        try:
            self._facts[device] = self._agents[device].probe()
        except Exception as error:
            return _failure_of(error)
        return self._facts[device]

    def measure(self, device: str, task: MeasureTask) -> Measurement:
        """Measures one repeat; a defect of an agent becomes a failed measurement too."""
        stop = threading.Event()
        with self._stops_lock:
            self._stops[task.task_id] = stop
        try:
            self._limits_s[task.task_id] = self._agents[device].longest_s(task)
            return self._measure_in_turn(device, task, stop)
        except Exception as error:
            return failure_measurement(task.task_id, _failure_of(error), self._origin(device))
        finally:
            with self._stops_lock:
                del self._stops[task.task_id]
                self._limits_s.pop(task.task_id, None)
                self._deadlines_s.pop(task.task_id, None)

    def left_s(self, task_id: str) -> float:
        """How long a task may still take, negative when it is late.

        All its time while it waits for the host's lease; 0 when it has just ended.
        """
        deadline_s = self._deadlines_s.get(task_id)
        if deadline_s is not None:
            return deadline_s - perf_counter()
        return self._limits_s.get(task_id, 0.0)

    def _measure_in_turn(
        self, device: str, task: MeasureTask, stop: threading.Event
    ) -> Measurement:
        """Takes the lease per attempt, so that two sweeps on one host take turns."""
        if device not in self._quiet:
            return self._start(device, task, stop)
        sweep_id = task.task_id.partition("/")[0]
        purpose = f"sweep {sweep_id}, which measures on this host"
        with host_lease(purpose, give_up=stop.is_set) as is_held:
            if not is_held:
                return failure_measurement(task.task_id, interrupted(), self._origin(device))
            return self._start(device, task, stop)

    def _start(self, device: str, task: MeasureTask, stop: threading.Event) -> Measurement:
        self._deadlines_s[task.task_id] = perf_counter() + self._limits_s[task.task_id]
        return self._agents[device].measure(task, stop.is_set)

    def _origin(self, device: str) -> Origin:
        facts = self._facts.get(device)
        return Origin.MEASURED if facts is None else facts.origin

    def infer(self, device: str, task: InferTask) -> Failure | None:
        """Runs an artifact over stored inputs."""
        try:
            return self._agents[device].infer(task)
        except Exception as error:
            return _failure_of(error)

    def interrupt(self) -> None:
        """Asks everything that is measured now to end; what begins later is not concerned."""
        with self._stops_lock:
            for stop in self._stops.values():
                stop.set()


def _failure_of(error: Exception) -> Failure:
    if isinstance(error, AgentError):
        kind, message, remedy = ErrorKind.DEVICE_LOST, error.message, error.remedy
    else:
        kind, message = ErrorKind.INTERNAL, f"{type(error).__name__}: {error}"
        remedy = "this is a defect of fleetrank; run with --inline --debug to see where"
    return Failure(
        kind=kind,
        message=message,
        remedy=remedy,
        is_transient=isinstance(error, TransientError),
        stage="start",
    )
