"""What the agent asks NVIDIA's management library, as values; `nvml.py` asks the real one.

`None` is a reading that the driver, the GPU or an older library does not have.
"""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One thing that CUDA can run on: a whole GPU, or an instance of one in MIG mode.

    Attributes:
        uuid: `GPU-...`, or `MIG-...` of an instance.
        index: of the physical GPU, in the order of the PCI bus.
        parent_uuid: of the physical GPU an instance is part of; `None` for a whole GPU.
        is_divided: a physical GPU in MIG mode, on which nothing can run but its instances.
    """

    uuid: str
    name: str
    index: int
    parent_uuid: str | None = None
    is_divided: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """All GPUs that answer, and how many did not: a GPU that fell off the bus cannot be named."""

    gpus: tuple[Gpu, ...]
    n_lost: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """Versions; `cuda` is the newest CUDA the driver serves, as (major, minor)."""

    version: str | None
    cuda: tuple[int, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What does not change while the host is up.

    Attributes:
        capability: compute capability as (major, minor).
        cuda_cores: of the physical GPU.
        pcie: (generation, lanes) now in use.
        nvlinks: links that are up; 0 on a GPU that has links and none up.
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
        """Versions of the driver."""
        ...

    def find(self) -> Found:
        """All GPUs and instances."""
        ...

    def hardware(self, gpu: Gpu) -> Hardware:
        """What it is."""
        ...

    def read(self, gpu: Gpu) -> Reading:
        """How it is now; of an instance, the physical GPU is read."""
        ...

    def processes(self, gpu: Gpu) -> tuple[GpuProcess, ...] | None:
        """All that use it, for computing or graphics; `None` where that is not told."""
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
        """Holds the SM clock at `mhz`; false where that is not allowed or not possible."""
        ...

    def unlock_clocks(self, gpu: Gpu) -> bool:
        """Lets the driver choose again; false where that is not allowed or not possible."""
        ...
