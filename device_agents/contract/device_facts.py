"""What a device is."""

from dataclasses import dataclass

from fleetrank.device_agents.contract.task import Options
from fleetrank.device_agents.contract.vocabulary import Origin, Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """What a device is; stored with every row it makes.

    Attributes:
        device_model: two phones of one model are two devices, one device model.
        physical_cores: `None` where the system does not tell.
        extra: further facts for a person to read, sorted by name.
    """

    device_model: str
    tier: Tier
    origin: Origin
    os: str
    arch: str
    cpu_model: str | None = None
    logical_cores: int | None = None
    physical_cores: int | None = None
    memory_bytes: int | None = None
    clock_max_mhz: float | None = None
    governor: str | None = None
    is_virtual_machine: bool | None = None
    extra: Options = ()
