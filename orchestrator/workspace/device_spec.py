"""What a host needs to know about a device; light, since every command reads device files."""

from dataclasses import dataclass

from fleetrank.device_agents.contract.kind import HostShare
from fleetrank.device_agents.contract.task import Options
from fleetrank.foundation.vocabulary import Origin

HOST_NAME = r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}"
"""Allowed host names: they become parts of paths and actor names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """The values needed to create a device's agent on its host.

    Attributes:
        origin: origin of its rows until the device has been queried.
    """

    name: str
    kind: str
    options: Options = ()
    share: HostShare = HostShare.NONE
    origin: Origin = Origin.MEASURED
