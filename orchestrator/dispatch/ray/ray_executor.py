"""An executor on Ray: sends tasks to the hosts of a cluster; hosts can leave and join."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from fleetrank.device_agents.contract.agent import DeviceFacts
from fleetrank.device_agents.contract.measurement import Failure, Measurement, failed
from fleetrank.device_agents.contract.task import MeasureTask
from fleetrank.foundation.vocabulary import ErrorKind
from fleetrank.orchestrator.dispatch.host.host_service import DeviceTask
from fleetrank.orchestrator.dispatch.ray.host_client import HostClient
from fleetrank.orchestrator.dispatch.ray.ray_hosts import HostHandle, RayHosts
from fleetrank.orchestrator.identity.cells import DeviceSpec

_log = logging.getLogger(__name__)

HOST_TIMEOUT_S = 30.0
"""A host answers every second; a host that swaps can take several seconds."""
_PROBE_TIMEOUT_S = 60.0
"""A probe of a phone that hangs takes half a minute to fail."""
_FACTS_TIMEOUT_S = 120.0
_FIRST_REPLY_S = 10.0
_LEAVE_S = 5.0
"""Time for the last acknowledgements; hosts offer unacknowledged measurements again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedDevice:
    """A device and the name of the host it is attached to."""

    spec: DeviceSpec
    host: str


class RayExecutor:
    """Keeps one client per host. Ray never repeats a call: only the controller retries.

    The running tasks of a host that does not answer fail as `host_lost`. When the host returns, it
    offers the measurements it has finished, and its devices answer probes again.
    """

    def __init__(
        self,
        sweep_id: str,
        devices: Sequence[PlacedDevice],
        hosts: RayHosts,
        *,
        host_timeout_s: float = HOST_TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Takes the sweep's id, its devices, the connected hosts and a monotonic clock."""
        self._clock = clock
        self._sweep_id = sweep_id
        self._devices = {device.spec.name: device for device in devices}
        self._specs = {name: device.spec for name, device in self._devices.items()}
        self._hosts = hosts
        self._host_timeout_s = host_timeout_s
        self._clients: dict[str, HostClient] = {}
        self._origins: dict[str, str] = {}
        self._arrived: list[Measurement] = []
        self._facts: dict[str, DeviceFacts] = {}

    def __enter__(self) -> Self:
        self._hosts.settle()
        self._facts = self._ask_facts()
        self._renew_clients()
        deadline_s = time.monotonic() + _FIRST_REPLY_S
        while time.monotonic() < deadline_s:
            if all(client.is_answered for client in self._clients.values()):
                break
            self._arrived += self._exchange(0.1)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.interrupt()
        deadline_s = time.monotonic() + _LEAVE_S
        while time.monotonic() < deadline_s and self._has_acknowledgements():
            self._exchange(0.1)
        self._clients.clear()

    def facts(self) -> Mapping[str, DeviceFacts]:
        """Facts of each device, probed when entering; a device that did not answer is missing."""
        return self._facts

    def in_flight(self) -> Mapping[str, str]:
        """The sweep's tasks in flight, as a mapping from task id to device."""
        return {
            task_id: spec.name
            for client in self._clients.values()
            for task_id, spec in client.in_flight.items()
        }

    def submit(self, device: str, task: MeasureTask) -> None:
        """Gives a task to the client of the device's host; the next poll sends it."""
        placed = self._devices[device]
        client = self._clients.get(placed.host)
        if client is None:
            failure = _host_lost(f"host {placed.host} is unavailable")
            self._arrived.append(failed(task.task_id, failure, placed.spec.origin))
        else:
            client.submit(DeviceTask(spec=placed.spec, task=task))

    def poll(self, timeout_s: float) -> Sequence[Measurement]:
        """Waits for the first measurement and returns all that have arrived."""
        arrived, self._arrived = self._arrived, []
        self._renew_clients()
        return [*arrived, *self._exchange(0.0 if arrived else timeout_s)]

    def acknowledge(self, task_ids: Sequence[str]) -> None:
        """Acknowledges stored measurements with the next poll of each host."""
        for task_id in task_ids:
            client = self._clients.get(self._origins.pop(task_id, ""))
            if client is not None:
                client.acknowledged.append(task_id)

    def probe(self, device: str) -> DeviceFacts | Failure:
        """Probes a device; blocks. Safe to call from any thread."""
        import ray

        placed = self._devices[device]
        handle = self._hosts.handles().get(placed.host)
        if handle is None:
            return _host_lost(f"host {placed.host} is unavailable")
        try:
            answer: DeviceFacts | Failure = ray.get(
                handle.actor.probe.remote(placed.spec), timeout=_PROBE_TIMEOUT_S
            )
        except ray.exceptions.RayError as error:
            return _host_lost(f"host {placed.host} does not answer: {_first_line(error)}")
        return answer

    def finish_rounds(self) -> None:
        """Ends running rounds after their current blocks."""
        for client in self._clients.values():
            client.finish_rounds()

    def interrupt(self) -> None:
        """Ends running tasks now."""
        for client in self._clients.values():
            client.interrupt()

    def _exchange(self, timeout_s: float) -> list[Measurement]:
        """One round over all hosts: sends, waits for a first reply, reads all that have arrived."""
        import ray

        by_reference = {
            ref: client for client in self._clients.values() for ref in client.exchange()
        }
        if by_reference:
            waiting = list(by_reference)
            # Two calls: the first returns at the first arrival, the second takes the whole batch.
            ready, _ = ray.wait(waiting, num_returns=1, timeout=timeout_s)
            if ready:
                ready, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0)
            for reference in ready:
                by_reference[reference].receive(reference)
        elif timeout_s:
            time.sleep(timeout_s)
        return [found for name in self._clients for found in self._drain(name)]

    def _drain(self, host: str) -> Sequence[Measurement]:
        arrived = self._clients[host].take_measurements()
        self._origins |= dict.fromkeys((found.task_id for found in arrived), host)
        return arrived

    def _renew_clients(self) -> None:
        handles = self._hosts.handles()
        for name, client in list(self._clients.items()):
            trouble = self._trouble(client, handles.get(name))
            if trouble is not None:
                _log.info("host %s: %s", name, trouble)
                client.fail_all(ErrorKind.HOST_LOST, f"host {name}: {trouble}")
                self._arrived += self._drain(name)
                del self._clients[name]
        for name, handle in self._hosts.handles().items():
            if name not in self._clients:
                self._clients[name] = HostClient(handle, self._sweep_id, self._specs, self._clock)

    def _trouble(self, client: HostClient, handle: HostHandle | None) -> str | None:
        """Returns why a client cannot be used any more; `None` if it can."""
        if handle is None or handle.node_id != client.handle.node_id:
            return "it has left the cluster"
        if client.has_died:
            self._hosts.distrust(handle.name)
            return "its actor has died"
        if client.silent_s > self._host_timeout_s:
            self._hosts.distrust(handle.name)
            return f"it has not answered for {self._host_timeout_s:g} s"
        return None

    def _has_acknowledgements(self) -> bool:
        return any(client.acknowledged for client in self._clients.values())

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
                _log.warning("the probes of host %s failed: %s", name, error)
        return found


def _host_lost(message: str) -> Failure:
    return Failure(
        kind=ErrorKind.HOST_LOST,
        message=message,
        remedy="`fleetrank cluster status` lists the available hosts",
        is_transient=True,
        stage="start",
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
