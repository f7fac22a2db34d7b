"""An executor on Ray: carries tasks to the hosts of a cluster, however they come and go."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from fleetrank.device_agents.contract.device_facts import DeviceFacts
from fleetrank.device_agents.contract.measurement import Failure, Measurement, failed
from fleetrank.device_agents.contract.task import MeasureTask
from fleetrank.device_agents.contract.vocabulary import ErrorKind
from fleetrank.orchestrator.dispatch.host.host_service import Order
from fleetrank.orchestrator.dispatch.ray.host_line import HostLine
from fleetrank.orchestrator.dispatch.ray.ray_hosts import HostHandle, RayHosts
from fleetrank.orchestrator.workspace.device_spec import DeviceSpec

_log = logging.getLogger(__name__)

HOST_TIMEOUT_S = 30.0
"""A host answers every second; a busy one that swaps may take some."""
_PROBE_TIMEOUT_S = 60.0
"""A phone that hangs takes half a minute to be given up."""
_FACTS_TIMEOUT_S = 120.0
_FIRST_ANSWER_S = 10.0
_LEAVE_S = 5.0
"""For telling hosts what was stored; what they are not told they offer again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedDevice:
    """A device and the name of the host it hangs on."""

    spec: DeviceSpec
    host: str


class RayExecutor:
    """One line per host. Calls are never repeated by Ray: the controller alone measures anew.

    A host that falls silent ends what it was running as `host_lost`; when it is back, what it
    finished meanwhile is offered, and its devices answer probes again.
    """

    def __init__(
        self,
        sweep_id: str,
        devices: Sequence[PlacedDevice],
        hosts: RayHosts,
        *,
        host_timeout_s: float = HOST_TIMEOUT_S,
    ) -> None:
        """Takes the sweep whose tasks it carries, its devices, and the hosts, connected."""
        self._sweep_id = sweep_id
        self._devices = {device.spec.name: device for device in devices}
        self._specs = {name: device.spec for name, device in self._devices.items()}
        self._hosts = hosts
        self._host_timeout_s = host_timeout_s
        self._lines: dict[str, HostLine] = {}
        self._origins: dict[str, str] = {}
        self._arrived: list[Measurement] = []
        self._facts: dict[str, DeviceFacts] = {}

    def __enter__(self) -> Self:
        self._hosts.settle()
        self._facts = self._ask_facts()
        self._look_after_lines()
        deadline_s = time.monotonic() + _FIRST_ANSWER_S
        while time.monotonic() < deadline_s:
            if all(line.is_answered for line in self._lines.values()):
                break
            self._arrived += self._exchange(0.1)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.interrupt()
        deadline_s = time.monotonic() + _LEAVE_S
        while time.monotonic() < deadline_s and self._has_to_tell():
            self._exchange(0.1)
        self._lines.clear()

    def facts(self) -> Mapping[str, DeviceFacts]:
        """What each device is, probed when entering; one that did not answer is missing."""
        return self._facts

    def under_way(self) -> Mapping[str, str]:
        """Tasks that hosts are running for this sweep, to the device each is on."""
        return {
            task_id: spec.name
            for line in self._lines.values()
            for task_id, spec in line.under_way.items()
        }

    def submit(self, device: str, task: MeasureTask) -> None:
        """Gives a task to the line of the device's host; it leaves with the next poll."""
        placed = self._devices[device]
        line = self._lines.get(placed.host)
        if line is None:
            failure = _host_lost(f"host {placed.host} is not there")
            self._arrived.append(failed(task.task_id, failure, placed.spec.origin))
        else:
            line.order(Order(spec=placed.spec, task=task))

    def poll(self, timeout_s: float) -> Sequence[Measurement]:
        """Waits for the first measurement and takes along what else is there."""
        arrived, self._arrived = self._arrived, []
        self._look_after_lines()
        return [*arrived, *self._exchange(0.0 if arrived else timeout_s)]

    def acknowledge(self, task_ids: Sequence[str]) -> None:
        """Lets hosts forget what is stored; they are told with the next question."""
        for task_id in task_ids:
            line = self._lines.get(self._origins.pop(task_id, ""))
            if line is not None:
                line.acknowledged.append(task_id)

    def probe(self, device: str) -> DeviceFacts | Failure:
        """Asks a device what it is; waits. Safe to call from any thread."""
        import ray

        placed = self._devices[device]
        handle = self._hosts.handles().get(placed.host)
        if handle is None:
            return _host_lost(f"host {placed.host} is not there")
        try:
            answer: DeviceFacts | Failure = ray.get(
                handle.actor.probe.remote(placed.spec), timeout=_PROBE_TIMEOUT_S
            )
        except ray.exceptions.RayError as error:
            return _host_lost(f"host {placed.host} does not answer: {_first_line(error)}")
        return answer

    def interrupt(self) -> None:
        """Ends running tasks now."""
        for line in self._lines.values():
            line.interrupt()

    def _exchange(self, timeout_s: float) -> list[Measurement]:
        """One round over all lines: sends, waits for a first reply, reads all that have come."""
        import ray

        by_reference = {ref: line for line in self._lines.values() for ref in line.pump()}
        if by_reference:
            waiting = list(by_reference)
            # Two calls: the first wakes with the first arrival, the second takes the whole batch.
            ready, _ = ray.wait(waiting, num_returns=1, timeout=timeout_s)
            if ready:
                ready, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0)
            for reference in ready:
                by_reference[reference].take(reference)
        elif timeout_s:
            time.sleep(timeout_s)
        return [found for name in self._lines for found in self._drain(name)]

    def _drain(self, host: str) -> Sequence[Measurement]:
        arrived = self._lines[host].drain()
        self._origins |= dict.fromkeys((found.task_id for found in arrived), host)
        return arrived

    def _look_after_lines(self) -> None:
        handles = self._hosts.handles()
        for name, line in list(self._lines.items()):
            trouble = self._trouble(line, handles.get(name))
            if trouble is not None:
                _log.info("host %s: %s", name, trouble)
                line.lose(ErrorKind.HOST_LOST, f"host {name}: {trouble}")
                self._arrived += self._drain(name)
                del self._lines[name]
        for name, handle in self._hosts.handles().items():
            if name not in self._lines:
                self._lines[name] = HostLine(handle, self._sweep_id, self._specs)

    def _trouble(self, line: HostLine, handle: HostHandle | None) -> str | None:
        """Why a line is of no use any more."""
        if handle is None or handle.node_id != line.handle.node_id:
            return "it has left the cluster"
        if line.has_died:
            self._hosts.distrust(handle.name)
            return "its actor has died"
        if line.silent_s > self._host_timeout_s:
            self._hosts.distrust(handle.name)
            return f"it has not answered for {self._host_timeout_s:g} s"
        return None

    def _has_to_tell(self) -> bool:
        return any(line.acknowledged for line in self._lines.values())

    def _ask_facts(self) -> dict[str, DeviceFacts]:
        import ray

        found: dict[str, DeviceFacts] = {}
        references = {}
        for name, handle in self._hosts.handles().items():
            specs = [placed.spec for placed in self._devices.values() if placed.host == name]
            references[name] = handle.actor.facts.remote(specs)
        for name, reference in references.items():
            try:
                found |= ray.get(reference, timeout=_FACTS_TIMEOUT_S)
            except ray.exceptions.RayError as error:
                _log.warning("host %s does not say what its devices are: %s", name, error)
        return found


def _host_lost(message: str) -> Failure:
    return Failure(
        kind=ErrorKind.HOST_LOST,
        message=message,
        remedy="`fleetrank cluster status` says which hosts are there",
        is_transient=True,
        stage="start",
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
