"""What the agent reads from NVIDIA's management library: values, and the errors of its codes.

`None` means that the driver, the GPU or an older library lacks the reading.
"""

from dataclasses import dataclass
from enum import IntEnum

from fleetrank.device_agents.errors import PermanentError, TransientError, UnusableDeviceError
from fleetrank.foundation.errors import FleetError


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One thing that CUDA can run on: a whole GPU, or an instance of one in MIG mode.

    Attributes:
        uuid: `GPU-...`, or `MIG-...` of an instance.
        index: of the physical GPU, in the order of the PCI bus.
        parent_uuid: UUID of the physical GPU of an instance; `None` for a whole GPU.
        is_divided: a physical GPU in MIG mode; only its instances can run programs.
    """

    uuid: str
    name: str
    index: int
    parent_uuid: str | None = None
    is_divided: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """All GPUs that answer, and the number of those that do not: a lost GPU has no name."""

    gpus: tuple[Gpu, ...]
    n_lost: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """Versions; `cuda` is the newest CUDA that the driver supports, as (major, minor)."""

    version: str | None
    cuda: tuple[int, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """Facts that do not change while the host is up.

    Attributes:
        capability: compute capability as (major, minor).
        cuda_cores: of the physical GPU.
        pcie: (generation, lanes) in use now.
        nvlinks: links that are up; 0 if the GPU has links but none is up.
    """

    capability: tuple[int, int] | None = None
    cuda_cores: int | None = None
    memory_bytes: int | None = None
    sm_clock_max_mhz: int | None = None
    memory_clock_max_mhz: int | None = None
    power_limit_mw: int | None = None
    has_ecc: bool | None = None
    pcie: tuple[int, int] | None = None
    nvlinks: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """The state at one moment.

    Attributes:
        event_reasons: bits that say why clocks are not higher.
        throttled_ns: time slowed down for power or heat since the driver was loaded.
    """

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temp_c: int | None = None
    power_mw: int | None = None
    event_reasons: int | None = None
    throttled_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process with memory on a GPU; in a container `pid` may be of another namespace."""

    pid: int
    name: str | None = None
    used_bytes: int | None = None


NO_AGENT = "other GPUs are not supported yet: a package can add them, as docs/extend.md shows"


class Code(IntEnum):
    """The codes that we distinguish. Source: nvmlReturn_t of NVML 13."""

    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    DRIVER_NOT_LOADED = 9
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    LIB_RM_VERSION_MISMATCH = 18
    NO_DATA = 21
    DEPRECATED = 26
    UNKNOWN = 999


ABSENT = {
    Code.NOT_SUPPORTED, Code.NO_PERMISSION, Code.NOT_FOUND, Code.FUNCTION_NOT_FOUND,
    Code.NO_DATA, Code.DEPRECATED,
}  # fmt: skip
"""A reading that this driver, GPU or user cannot get: it is missing, and this is not an error."""
UNTOLD = ABSENT | {Code.INVALID_ARGUMENT, Code.UNKNOWN}
"""The same for readings. It adds parts that this GPU lacks, such as its 13th link, and the driver's
code for a failed sensor: `nvidia-smi` shows that field as unknown and the others normally."""
LOST = {Code.GPU_IS_LOST, Code.RESET_REQUIRED}


def is_absent(code: int) -> bool:
    """Whether the code means that the call is not possible here."""
    return code in ABSENT


def is_untold(code: int) -> bool:
    """Whether the code means that the value is not available here."""
    return code in UNTOLD


def as_error(code: int, text: str) -> FleetError:
    """The error for a code that is not `is_absent`; `text` is the library's own message."""
    if code in LOST:
        return TransientError(
            f"the GPU does not answer any more: {text}",
            "look for Xid messages in `dmesg`; a lost GPU returns after a reset or a reboot",
        )
    if code in (Code.LIBRARY_NOT_FOUND, Code.DRIVER_NOT_LOADED):
        return UnusableDeviceError(
            f"this host has no working NVIDIA driver: {text}",
            f"install or load it until `nvidia-smi` works; {NO_AGENT}",
        )
    if code == Code.LIB_RM_VERSION_MISMATCH:
        return UnusableDeviceError(
            f"the NVIDIA driver and its library have different versions: {text}",
            "reboot: the driver was updated while it was in use",
        )
    if code == Code.NO_PERMISSION:
        return UnusableDeviceError(
            f"this user may not use the NVIDIA driver: {text}", "check the rights of /dev/nvidia*"
        )
    return PermanentError(f"the NVIDIA driver answers: {text}", "check the GPU with `nvidia-smi`")


def no_driver_here(vendor: str) -> UnusableDeviceError:
    """The error for a host whose GPUs are from another vendor."""
    return UnusableDeviceError(
        f"this host has no NVIDIA driver; its GPU is made by {vendor}", NO_AGENT
    )
