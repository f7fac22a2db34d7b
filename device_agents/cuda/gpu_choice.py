"""Chooses the GPU, and checks whether this process may use it: pure."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from fleetrank.device_agents.contract.agent import DeviceFacts
from fleetrank.device_agents.contract.task import Options, OptionValue
from fleetrank.device_agents.cuda.nvml_library import Driver, Found, Gpu, Hardware
from fleetrank.device_agents.errors import PermanentError, TransientError, UnusableDeviceError
from fleetrank.foundation.vocabulary import Tier

VISIBLE = "CUDA_VISIBLE_DEVICES"


def choose_gpu(found: Found, *, wanted: str | None, visible: str | None) -> Gpu:
    """Returns the GPU or MIG instance with this UUID, or the only one that exists.

    Args:
        found: the driver's list.
        wanted: a UUID, or a prefix of it.
        visible: the environment's CUDA_VISIBLE_DEVICES; `None` if it is not set.

    Raises:
        TransientError: it is not listed, and a GPU of this host has fallen off the bus.
        UnusableDeviceError: it does not exist, is hidden, or is divided into instances.
        PermanentError: the option is not set, and several GPUs exist.
    """
    usable = [gpu for gpu in found.gpus if not gpu.is_divided]
    shown = visible_gpus(found.gpus, visible)
    if wanted is None:
        return _only(shown, usable, found, visible)
    gpu = next((gpu for gpu in found.gpus if gpu.uuid.startswith(wanted)), None)
    if gpu is None:
        raise _missing(wanted, found)
    if gpu.is_divided:
        instances = [other for other in usable if other.parent_uuid == gpu.uuid]
        raise UnusableDeviceError(
            f"the GPU {gpu.uuid} is in MIG mode and cannot run programs itself",
            f"register one of its instances: {_listed(instances)}",
        )
    if gpu not in shown:
        raise UnusableDeviceError(
            f"{VISIBLE}={visible} hides the GPU {gpu.uuid}",
            f"unset {VISIBLE}, or add {gpu.uuid} to it, where fleetrank or its Ray is started",
        )
    return gpu


def visible_gpus(gpus: Sequence[Gpu], visible: str | None) -> list[Gpu]:
    """The GPUs that CUDA would show, in CUDA's order.

    An index counts in PCI order, as CUDA counts if all GPUs are of the same model.

    Source: CUDA programming guide, environment variables: a list of indices, of beginnings of
        `GPU-` or of `MIG-` UUIDs; GPUs after the first unknown entry are hidden.
    """
    usable = [gpu for gpu in gpus if not gpu.is_divided]
    if visible is None:
        return usable
    shown: list[Gpu] = []
    for entry in visible.split(","):
        named = [gpu for gpu in usable if _is_named(gpu, entry.strip())]
        if not named:
            break
        shown += [gpu for gpu in named if gpu not in shown]
    return shown


def _is_named(gpu: Gpu, entry: str) -> bool:
    if entry.isdecimal():
        return gpu.index == int(entry)
    return entry.startswith(("GPU-", "MIG-")) and (
        gpu.uuid.startswith(entry) or (gpu.parent_uuid or "").startswith(entry)
    )


def _only(shown: Sequence[Gpu], usable: Sequence[Gpu], found: Found, visible: str | None) -> Gpu:
    if len(shown) == 1:
        return shown[0]
    if shown:
        raise PermanentError(
            f"this host has {len(shown)} GPUs, but the device does not name one",
            f"set the option uuid of the device to one of: {_listed(shown)}",
        )
    if usable:
        raise UnusableDeviceError(
            f"{VISIBLE}={visible} hides every GPU of this host",
            f"unset {VISIBLE} where fleetrank or its Ray is started",
        )
    if found.n_lost:
        raise _lost("the GPU")
    if found.gpus:
        raise UnusableDeviceError(
            "this host's GPUs are in MIG mode and have no instances",
            "create instances with `nvidia-smi mig`, or disable MIG mode",
        )
    raise UnusableDeviceError(
        "the NVIDIA driver lists no GPU", "check `nvidia-smi`, and the permissions of a container"
    )


def _missing(wanted: str, found: Found) -> TransientError | UnusableDeviceError:
    if found.n_lost:
        return _lost(f"the GPU {wanted}")
    return UnusableDeviceError(
        f"this host has no GPU {wanted}", f"register one of its GPUs: {_listed(found.gpus)}"
    )


def _lost(what: str) -> TransientError:
    return TransientError(
        f"{what} does not answer: a GPU of this host has fallen off the bus",
        "look for Xid messages in `dmesg`; it returns after a reset or a reboot",
    )


def _listed(gpus: Sequence[Gpu]) -> str:
    return ", ".join(f"{gpu.uuid} ({gpu.name})" for gpu in gpus) or "none"


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
