"""What a driver sends a host, and what the host answers."""

from dataclasses import dataclass

from fleetrank.device_agents.contract.kind import HostShare
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.task import MeasureTask, Options
from fleetrank.device_agents.hold import Reservation
from fleetrank.device_agents.power import Power
from fleetrank.foundation.vocabulary import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """The values needed to create a device's agent on its host.

    Attributes:
        origin: origin of its rows until the device has been queried.
        reserve: how to reserve it; `None` if it is always ours.
        power: how to switch it off and on; `None` if that is not possible.
    """

    name: str
    kind: str
    options: Options = ()
    share: HostShare = HostShare.NONE
    origin: Origin = Origin.MEASURED
    reserve: Reservation | None = None
    power: Power | None = None

    @property
    def ties(self) -> frozenset[object]:
        """Devices with a common one are one unit, such as a board with a CPU and a GPU."""
        return frozenset(one for one in (self.name, self.reserve, self.power) if one is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTask:
    """A task and its device."""

    spec: DeviceSpec
    task: MeasureTask


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """A part of a file that is sent to a host.

    Attributes:
        name: `SHA256.FORMAT`.
        delivery: hexadecimal id, new for each attempt to send the file.
        size_bytes: of the whole file; room is made for it before its first part is stored.
        is_last: whether this is the last part.
    """

    name: str
    delivery: str
    size_bytes: int
    content: bytes
    is_last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PollRequest:
    """What a driver sends a host repeatedly, to get its news.

    Attributes:
        session: new for each driver and after each reply that may have been lost. In a new session
            the host offers all kept measurements again.
        acknowledged: ids of the tasks whose measurements the driver has stored.
        wait_s: how long the host waits for something to report.
    """

    sweep_id: str
    session: str
    acknowledged: tuple[str, ...] = ()
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PollReply:
    """The news of a host for a driver.

    Attributes:
        session: the session of the request.
        measurements: measurements since the session's last reply.
        running: the sweep's tasks in flight, each with its device.
        has_hung: an agent does not return; the host's process must be restarted.
    """

    session: str
    measurements: tuple[Measurement, ...]
    running: tuple[tuple[str, str], ...]
    has_hung: bool
