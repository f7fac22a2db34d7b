"""The contract of an executor, which carries tasks to devices: in this process, or through Ray."""

from collections.abc import Mapping, Sequence
from typing import Protocol, Self

from fleetrank.device_agents.contract.agent import DeviceFacts
from fleetrank.device_agents.contract.measurement import Failure, Measurement
from fleetrank.device_agents.contract.task import MeasureTask


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

    def interrupt(self) -> None:
        """Ends running tasks now; each returns as a failure of kind `interrupted`."""
        ...
