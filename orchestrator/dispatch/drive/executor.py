"""The contract of what carries tasks to devices: in this process, or through Ray."""

from collections.abc import Mapping, Sequence
from typing import Protocol, Self

from fleetrank.device_agents.contract.device_facts import DeviceFacts
from fleetrank.device_agents.contract.measurement import Failure, Measurement
from fleetrank.device_agents.contract.task import MeasureTask


class Executor(Protocol):
    """Carries tasks to devices and measurements back; decides nothing.

    A context manager: entering connects, leaving ends every worker it started.
    """

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...

    def facts(self) -> Mapping[str, DeviceFacts]:
        """What each device of the sweep is, probed when entering, by device name."""
        ...

    def under_way(self) -> Mapping[str, str]:
        """Tasks given to devices and not come back, to the device each is on.

        When entering, those that a driver before this one has left running.
        """
        ...

    def submit(self, device: str, task: MeasureTask) -> None:
        """Starts a task on a device that has none running; returns at once."""
        ...

    def poll(self, timeout_s: float) -> Sequence[Measurement]:
        """Waits at most `timeout_s` for measurements and returns those that arrived.

        A process that dies gives a failed measurement of kind `device_lost` for what it was
        running, a host that falls silent one of kind `host_lost`. Measurements that nobody here
        asked for come too: a driver before this one did, or they were believed lost.
        """
        ...

    def acknowledge(self, task_ids: Sequence[str]) -> None:
        """Says that measurements are stored safely; until then they are kept where they arose."""
        ...

    def probe(self, device: str) -> DeviceFacts | Failure:
        """Asks a device that was set aside what it is, or learns why it cannot tell. Waits."""
        ...

    def interrupt(self) -> None:
        """Ends running tasks now; each comes back as a failure of kind `interrupted`."""
        ...
