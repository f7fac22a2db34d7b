"""What a host needs to know of a device; light, since every command reads device files."""

from dataclasses import dataclass
from enum import StrEnum

from fleetrank.device_agents.contract.task import Options
from fleetrank.device_agents.contract.vocabulary import Origin

HOST_NAME = r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}"
"""Names of hosts: they become parts of paths and of actors' names."""


class HostShare(StrEnum):
    """What measuring on a device takes of its host's lease."""

    ALONE = "alone"
    """The whole host: the device computes on the host's own cores."""
    BESIDE = "beside"
    """Beside others of its kind, such as phones on one host."""
    NONE = "none"
    """Nothing: it disturbs nobody, or takes the lease itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """What it takes to make a device's agent, on whatever host it hangs.

    Attributes:
        origin: of rows about it while it has not told what it is.
    """

    name: str
    kind: str
    options: Options = ()
    share: HostShare = HostShare.NONE
    origin: Origin = Origin.MEASURED
