"""What the agent reads from NVIDIA's management library, as values; `nvml.py` calls the real one.

`None` means that the driver, the GPU or an older library lacks the reading.
"""

from dataclasses import dataclass
from typing import Protocol


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
class Reading:
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


class GpuLibrary(Protocol):
    """Every method may raise `TransientError` when the GPU falls off the bus."""

    def driver(self) -> Driver:
        """Versions of the driver and of CUDA."""
        ...

    def find(self) -> Found:
        """Lists all GPUs and MIG instances."""
        ...

    def hardware(self, gpu: Gpu) -> Hardware:
        """Facts that do not change while the host is up."""
        ...

    def read(self, gpu: Gpu) -> Reading:
        """Reads the current state; for an instance, of the physical GPU."""
        ...

    def processes(self, gpu: Gpu) -> tuple[GpuProcess, ...] | None:
        """All processes that use it, for computing or graphics; `None` if unknown."""
        ...

    def energy_mj(self, gpu: Gpu) -> int | None:
        """The counter since the driver was loaded; `None` for an instance, whose share is unknown.

        Source: NVML's nvmlDeviceGetTotalEnergyConsumption, in millijoules, from Volta on.
        """
        ...

    def power_mw(self, gpu: Gpu) -> int | None:
        """Power now, or its mean over the last second on newer GPUs; `None` for an instance."""
        ...

    def lock_clocks(self, gpu: Gpu, mhz: int) -> bool:
        """Locks the SM clock at `mhz`; false if that is not allowed or not possible."""
        ...

    def unlock_clocks(self, gpu: Gpu) -> bool:
        """Unlocks the SM clock; false if that is not allowed or not possible."""
        ...
