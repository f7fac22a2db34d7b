"""The agents of one host and what they are busy with; the inline executor and the actor use it."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from device_agents.agent import Agent
from device_agents.errors import AgentError, TransientError
from device_agents.registry import create_agent
from device_agents.types import DeviceFacts, Failure, InferTask, Measurement, MeasureTask, Options
from device_agents.vocabulary import ErrorKind, Origin
from orchestrator.translate import failure_measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """What it takes to make a device's agent, on whatever host it hangs."""

    name: str
    kind: str
    options: Options = ()


class DeviceBench:
    """Owns the devices of one host. Every method blocks; call it from a thread of its own."""

    def __init__(self, specs: tuple[DeviceSpec, ...]) -> None:
        self._agents: dict[str, Agent] = {
            spec.name: create_agent(spec.kind, dict(spec.options)) for spec in specs
        }
        self._facts: dict[str, DeviceFacts] = {}
        self._stops: dict[str, threading.Event] = {}
        self._stops_lock = threading.Lock()

    def facts(self) -> Mapping[str, DeviceFacts]:
        """Probes every device; one that does not answer is left out."""
        for name in self._agents:
            self.probe(name)
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
            return self._agents[device].measure(task, stop.is_set)
        except Exception as error:
            facts = self._facts.get(device)
            origin = Origin.MEASURED if facts is None else facts.origin
            return failure_measurement(task.task_id, _failure_of(error), origin)
        finally:
            with self._stops_lock:
                del self._stops[task.task_id]

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
