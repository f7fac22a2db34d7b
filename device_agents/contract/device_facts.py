"""Facts about a device."""

from dataclasses import dataclass

from fleetrank.device_agents.contract.task import Options
from fleetrank.foundation.vocabulary import Origin, Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """Facts about a device; every row measured on it stores them.

    Attributes:
        device_model: two phones of one model are two devices with the same device model.
        physical_cores: `None` if the system does not report it.
        extra: further facts, only for display, sorted by name.
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
