"""Describes a GPU as `DeviceFacts`: pure except for the host's own facts."""

import hashlib
from dataclasses import replace

from fleetrank.device_agents.contract.device_facts import DeviceFacts
from fleetrank.device_agents.contract.task import Options, OptionValue
from fleetrank.device_agents.cuda.library import Driver, Gpu, Hardware
from fleetrank.foundation.vocabulary import Tier

_CORES_PER_SM = {
    (6, 0): 64, (6, 1): 128, (7, 0): 64, (7, 2): 64, (7, 5): 64, (8, 0): 64, (8, 6): 128,
    (8, 7): 128, (8, 9): 128, (9, 0): 128, (10, 0): 128, (10, 3): 128, (12, 0): 128, (12, 1): 128,
}  # fmt: skip
"""Source: CUDA programming guide, arithmetic instructions: 32-bit additions per clock and SM."""


def gpu_facts(host: DeviceFacts, gpu: Gpu, hardware: Hardware, driver: Driver) -> DeviceFacts:
    """The host's facts, with the GPU instead of the processor; tier `gpu`.

    `arch` is the compute capability; `memory_bytes` and `clock_max_mhz` are the GPU's. Cores and
    processor are those of the host.
    """
    clock = hardware.sm_clock_max_mhz
    return replace(
        host,
        device_model=gpu.name,
        tier=Tier.GPU,
        arch=host.arch if hardware.capability is None else "sm_{}{}".format(*hardware.capability),
        memory_bytes=hardware.memory_bytes,
        clock_max_mhz=None if clock is None else float(clock),
        governor=None,
        extra=_extra(gpu, hardware, driver),
    )


def uuid_hash(uuid: str) -> str:
    """The name of a GPU everywhere except in a device file: a UUID is a serial number."""
    return hashlib.sha256(uuid.encode()).hexdigest()[:12]


def sm_count(hardware: Hardware) -> int | None:
    """Streaming multiprocessors of the physical GPU; `None` for an unknown architecture."""
    if hardware.capability is None or hardware.cuda_cores is None:
        return None
    per_sm = _CORES_PER_SM.get(hardware.capability)
    return None if per_sm is None else hardware.cuda_cores // per_sm


def _extra(gpu: Gpu, hardware: Hardware, driver: Driver) -> Options:
    limit = hardware.power_limit_mw
    found: dict[str, OptionValue | None] = {
        "compute_capability": _dotted(hardware.capability),
        "cuda_driver_version": _dotted(driver.cuda),
        "driver_version": driver.version,
        "has_ecc": hardware.has_ecc,
        "is_mig_instance": gpu.parent_uuid is not None,
        "memory_clock_max_mhz": hardware.memory_clock_max_mhz,
        "nvlinks": hardware.nvlinks,
        "pcie": None if hardware.pcie is None else "gen {} x{}".format(*hardware.pcie),
        "power_limit_w": None if limit is None else limit / 1000,
        "sm_count": None if gpu.parent_uuid is not None else sm_count(hardware),
        "uuid_hash": uuid_hash(gpu.uuid),
    }
    return tuple((name, value) for name, value in sorted(found.items()) if value is not None)


def _dotted(version: tuple[int, int] | None) -> str | None:
    return None if version is None else "{}.{}".format(*version)
