"""The contract of an executor, which carries tasks to devices, and the one without Ray.

Without Ray, agents run in threads of this process, for debugging and tests. With Ray:
`dispatch.ray.ray_executor`.
"""

import queue
import threading
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Protocol, Self

from fleetrank.device_agents.contract.agent import DeviceFacts
from fleetrank.device_agents.contract.measurement import Failure, Measurement
from fleetrank.device_agents.contract.task import MeasureTask
from fleetrank.orchestrator.dispatch.host.local_devices import LocalDevices
from fleetrank.orchestrator.identity.cells import DeviceSpec


class Executor(Protocol):
    """Carries tasks to devices and measurements back; decides nothing.

    A context manager: entering connects, leaving ends every worker it started.
    """

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...

    def facts(self) -> Mapping[str, DeviceFacts]:
        """Facts of each device of the sweep by device name, probed when entering."""
        ...

    def in_flight(self) -> Mapping[str, str]:
        """Tasks in flight, as a mapping from task id to device.

        Directly after entering: the tasks that an earlier driver left running.
        """
        ...

    def submit(self, device: str, task: MeasureTask) -> None:
        """Starts a task on a device that has no running task; returns at once."""
        ...

    def poll(self, timeout_s: float) -> Sequence[Measurement]:
        """Waits at most `timeout_s` for measurements and returns those that arrived.

        If a process dies, its running task returns as a failed measurement of kind `device_lost`;
        if a host does not answer, of kind `host_lost`. Late measurements are returned too: an
        earlier driver started them, or they were believed lost.
        """
        ...

    def acknowledge(self, task_ids: Sequence[str]) -> None:
        """Acknowledges stored measurements; until then the host that made them keeps them."""
        ...

    def probe(self, device: str) -> DeviceFacts | Failure:
        """Probes a device that was set aside; returns its facts or the failure. Blocks."""
        ...

    def finish_rounds(self) -> None:
        """Ends running rounds after their current blocks, which count."""
        ...

    def interrupt(self) -> None:
        """Ends running tasks now; each returns as a failure of kind `interrupted`."""
        ...


_LEAVE_S = 10.0
"""How long leaving waits for interrupted workers; the system ends the others."""


class InlineExecutor:
    """Carries tasks to agents in this process; one thread per running task."""

    def __init__(self, specs: Sequence[DeviceSpec]) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._bench: LocalDevices | None = None
        self._facts: Mapping[str, DeviceFacts] = {}
        self._done: queue.SimpleQueue[Measurement] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._bench = LocalDevices()
        self._facts = self._bench.facts(tuple(self._specs.values()))
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.interrupt()
        give_up_s = perf_counter() + _LEAVE_S
        for thread in self._threads:
            thread.join(max(0.0, give_up_s - perf_counter()))
        self._bench = None

    def facts(self) -> Mapping[str, DeviceFacts]:
        """Facts of each device, probed when entering; a device that did not answer is missing."""
        return self._facts

    def in_flight(self) -> Mapping[str, str]:
        """Tasks in flight; empty after entering, because tasks here end with their driver."""
        return {}

    def submit(self, device: str, task: MeasureTask) -> None:
        """Starts a task in a thread; the thread lives longer than its worker process."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(
            target=self._measure, args=(self._entered(), self._specs[device], task), daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def poll(self, timeout_s: float) -> Sequence[Measurement]:
        """Waits for the first measurement and returns all that have arrived."""
        arrived: list[Measurement] = []
        try:
            arrived.append(self._done.get(timeout=timeout_s))
            while True:
                arrived.append(self._done.get_nowait())
        except queue.Empty:
            return arrived

    def acknowledge(self, task_ids: Sequence[str]) -> None:
        """Does nothing, because this process keeps no measurements."""

    def probe(self, device: str) -> DeviceFacts | Failure:
        """Probes a device in the calling thread."""
        return self._entered().probe(self._specs[device])

    def finish_rounds(self) -> None:
        """Ends running rounds after their current blocks."""
        if self._bench is not None:
            self._bench.finish_rounds()

    def interrupt(self) -> None:
        """Ends running tasks now."""
        if self._bench is not None:
            self._bench.interrupt()

    def _measure(self, bench: LocalDevices, spec: DeviceSpec, task: MeasureTask) -> None:
        self._done.put(bench.measure(spec, task))

    def _entered(self) -> LocalDevices:
        if self._bench is None:
            raise RuntimeError("the executor is used outside its `with` block")
        return self._bench
