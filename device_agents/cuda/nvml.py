"""NVML through `nvidia-ml-py`: calls it and returns values; decides nothing."""

import importlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import cast

from fleetrank.device_agents.cuda.nvml_library import (
    Code,
    Driver,
    Found,
    Gpu,
    GpuProcess,
    GpuReading,
    Hardware,
    as_error,
    is_absent,
    is_untold,
    no_driver_here,
)
from fleetrank.device_agents.device_output import bounded_name
from fleetrank.device_agents.errors import TransientError, missing_library
from fleetrank.device_agents.linux.worker_process import text_of
from fleetrank.foundation.errors import FleetError

_NAMES = {"0x1002": "AMD", "0x8086": "Intel"}
"""PCI vendor numbers."""
_NVIDIA = "0x10de"


def other_vendor(root: Path = Path("/")) -> str | None:
    """The vendor of this host's GPUs; `None` if one is an NVIDIA GPU, or if no GPU is known."""
    found = {text_of(file).strip() for file in (root / "sys/class/drm").glob("card*/device/vendor")}
    if _NVIDIA in found:
        return None
    # A processor's own graphics beside an AMD card is not what a user wants to measure.
    return next((name for number, name in _NAMES.items() if number in found), None)


Handle = object
_SM, _MEMORY = 1, 2
"""nvmlClockType_t."""
_POLICIES = (0, 1)
"""nvmlPerfPolicyType_t: power and heat."""
_NO_PIDS = (0, 0xFFFFFFFF)
"""A process of another namespace, whose number this process may not see."""
_MAX_LINKS = 18
"""More links than any GPU has. Source: NVML_NVLINK_MAX_LINKS."""


def open_nvml() -> "Nvml":
    """Opens the driver's library of this host.

    Raises:
        MissingLibraryError: the Python binding is not installed.
        UnusableDeviceError: the driver does not exist or does not work.
    """
    try:
        binding = importlib.import_module("pynvml")
    except ImportError as error:
        raise missing_library("nvidia-ml-py", "cuda", error) from error
    return Nvml(binding)


class Nvml:
    """NVIDIA's management library; a function that an older driver lacks gives `None`.

    Every method may raise `TransientError` when the GPU falls off the bus.
    """

    def __init__(self, binding: ModuleType, root: Path = Path("/")) -> None:
        self._binding = binding
        try:
            binding.nvmlInit()
        except binding.NVMLError as error:
            vendor = other_vendor(root) if error.value == Code.LIBRARY_NOT_FOUND else None
            raise (no_driver_here(vendor) if vendor else self._error(error)) from error

    def driver(self) -> Driver:
        """Versions of the driver and of CUDA."""
        cuda = self._number("nvmlSystemGetCudaDriverVersion_v2")
        return Driver(
            version=self._text("nvmlSystemGetDriverVersion"),
            # 13010 is 13.1. Source: NVML_CUDA_DRIVER_VERSION_MAJOR and _MINOR.
            cuda=None if cuda is None else (cuda // 1000, cuda % 1000 // 10),
        )

    def find(self) -> Found:
        """Lists all GPUs and MIG instances."""
        gpus: list[Gpu] = []
        n_lost = 0
        for index in range(self._number("nvmlDeviceGetCount") or 0):
            try:
                gpus += self._gpus_at(index)
            except TransientError:
                n_lost += 1
            except FleetError:
                continue  # this user or container may not access it
        return Found(gpus=tuple(gpus), n_lost=n_lost)

    def hardware(self, gpu: Gpu) -> Hardware:
        """Facts that do not change while the host is up."""
        own, whole = self._handle(gpu), self._physical(gpu)
        memory = self._ask("nvmlDeviceGetMemoryInfo", own)
        ecc = self._ask("nvmlDeviceGetEccMode", whole)
        return Hardware(
            capability=_pair(self._ask("nvmlDeviceGetCudaComputeCapability", whole)),
            cuda_cores=self._number("nvmlDeviceGetNumGpuCores", whole),
            memory_bytes=_whole_number(getattr(memory, "total", None)),
            sm_clock_max_mhz=self._number("nvmlDeviceGetMaxClockInfo", whole, _SM),
            memory_clock_max_mhz=self._number("nvmlDeviceGetMaxClockInfo", whole, _MEMORY),
            power_limit_mw=self._number("nvmlDeviceGetEnforcedPowerLimit", whole),
            has_ecc=bool(ecc[0]) if isinstance(ecc, list | tuple) else None,
            pcie=_both(
                self._number("nvmlDeviceGetCurrPcieLinkGeneration", whole),
                self._number("nvmlDeviceGetCurrPcieLinkWidth", whole),
            ),
            nvlinks=self._links(whole),
        )

    def read(self, gpu: Gpu) -> GpuReading:
        """Reads the current state; for an instance, of the physical GPU."""
        handle = self._physical(gpu)
        reasons = self._number("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if reasons is None:  # the name before driver 535
            reasons = self._number("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        return GpuReading(
            sm_clock_mhz=self._number("nvmlDeviceGetClockInfo", handle, _SM),
            memory_clock_mhz=self._number("nvmlDeviceGetClockInfo", handle, _MEMORY),
            temp_c=self._number("nvmlDeviceGetTemperature", handle, 0),
            power_mw=self.power_mw(gpu),
            event_reasons=reasons,
            throttled_ns=self._throttled_ns(handle),
        )

    def processes(self, gpu: Gpu) -> tuple[GpuProcess, ...] | None:
        """All processes that use it, for computing or graphics; `None` if unknown."""
        handle = self._handle(gpu)
        lists = [
            self._ask(f"nvmlDeviceGet{kind}RunningProcesses", handle)
            for kind in ("Compute", "Graphics")
        ]
        if all(found is None for found in lists):
            return None
        known = [it for found in lists if isinstance(found, list) for it in found]
        # A process that computes and draws is in both lists. Those without a number differ.
        keys = [it.pid if it.pid not in _NO_PIDS else -place for place, it in enumerate(known, 1)]
        once = dict(zip(keys, known, strict=True))
        return tuple(self._process(once[key]) for key in sorted(once))

    def _process(self, listed: object) -> GpuProcess:
        pid: int = listed.pid  # type: ignore[attr-defined]
        return GpuProcess(
            pid=pid,
            name=self._text("nvmlSystemGetProcessName", pid),
            used_bytes=_whole_number(listed.usedGpuMemory),  # type: ignore[attr-defined]
        )

    def energy_mj(self, gpu: Gpu) -> int | None:
        """The counter since the driver was loaded; `None` for an instance, whose share is unknown.

        Source: NVML's nvmlDeviceGetTotalEnergyConsumption, in millijoules, from Volta on.
        """
        if gpu.parent_uuid is not None:
            return None
        return self._number("nvmlDeviceGetTotalEnergyConsumption", self._handle(gpu))

    def power_mw(self, gpu: Gpu) -> int | None:
        """Power now, or its mean over the last second on newer GPUs; `None` for an instance."""
        if gpu.parent_uuid is not None:
            return None
        return self._number("nvmlDeviceGetPowerUsage", self._handle(gpu))

    def lock_clocks(self, gpu: Gpu, mhz: int) -> bool:
        """Locks the SM clock at `mhz`; false if that is not allowed or not possible."""
        return self._do("nvmlDeviceSetGpuLockedClocks", self._physical(gpu), mhz, mhz)

    def unlock_clocks(self, gpu: Gpu) -> bool:
        """Unlocks the SM clock; false if that is not allowed or not possible."""
        return self._do("nvmlDeviceResetGpuLockedClocks", self._physical(gpu))

    def _gpus_at(self, index: int) -> list[Gpu]:
        handle = self._call(partial(self._binding.nvmlDeviceGetHandleByIndex, index))
        mode = self._ask("nvmlDeviceGetMigMode", handle)
        is_divided = isinstance(mode, list | tuple) and bool(mode[0])
        gpu = self._gpu(handle, index, is_divided=is_divided)
        instances = self._instances(handle, gpu) if is_divided else []
        return [gpu, *instances]

    def _instances(self, handle: Handle, parent: Gpu) -> list[Gpu]:
        found = []
        for number in range(self._number("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
            instance = self._ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
            if instance is not None:
                found.append(self._gpu(instance, parent.index, parent_uuid=parent.uuid))
        return found

    def _gpu(
        self,
        handle: Handle,
        index: int,
        *,
        parent_uuid: str | None = None,
        is_divided: bool = False,
    ) -> Gpu:
        return Gpu(
            uuid=self._text("nvmlDeviceGetUUID", handle) or f"GPU at index {index}",
            name=self._text("nvmlDeviceGetName", handle) or "NVIDIA GPU",
            index=index,
            parent_uuid=parent_uuid,
            is_divided=is_divided,
        )

    def _handle(self, gpu: Gpu) -> Handle:
        return self._call(partial(self._binding.nvmlDeviceGetHandleByUUID, gpu.uuid))

    def _physical(self, gpu: Gpu) -> Handle:
        uuid = gpu.parent_uuid or gpu.uuid
        return self._call(partial(self._binding.nvmlDeviceGetHandleByUUID, uuid))

    def _throttled_ns(self, handle: Handle) -> int | None:
        found = [self._ask("nvmlDeviceGetViolationStatus", handle, it) for it in _POLICIES]
        times = [_whole_number(getattr(it, "violationTime", None)) for it in found]
        known = [time for time in times if time is not None]
        return sum(known) if len(known) == len(times) else None

    def _links(self, handle: Handle) -> int | None:
        states = [
            self._number("nvmlDeviceGetNvLinkState", handle, link) for link in range(_MAX_LINKS)
        ]
        known = [state for state in states if state is not None]
        return sum(state == 1 for state in known) if known else None

    def _number(self, function: str, *arguments: object) -> int | None:
        return _whole_number(self._ask(function, *arguments))

    def _text(self, function: str, *arguments: object) -> str | None:
        found = self._ask(function, *arguments)
        text = found.decode(errors="replace") if isinstance(found, bytes) else _text(found)
        return None if text is None else bounded_name(text)

    def _do(self, function: str, *arguments: object) -> bool:
        """Makes a call that changes something; returns whether it succeeded."""
        call = getattr(self._binding, function, None)
        if call is None:
            return False
        try:
            call(*arguments)
        except self._binding.NVMLError as error:
            if is_absent(error.value):
                return False
            raise self._error(error) from error
        return True

    def _ask(self, function: str, *arguments: object) -> object:
        """The answer, or `None` if binding, driver or GPU has none."""
        call = getattr(self._binding, function, None)
        if call is None:
            return None
        try:
            return cast(object, call(*arguments))
        except self._binding.NVMLError as error:
            if is_untold(error.value):
                return None
            raise self._error(error) from error

    def _call(self, call: Callable[[], object]) -> object:
        try:
            return call()
        except self._binding.NVMLError as error:
            raise self._error(error) from error

    def _error(self, error: Exception) -> FleetError:
        return as_error(error.value, str(error))  # type: ignore[attr-defined]


def _whole_number(found: object) -> int | None:
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _text(found: object) -> str | None:
    return found if isinstance(found, str) else None


def _pair(found: object) -> tuple[int, int] | None:
    is_pair = isinstance(found, list | tuple) and len(found) == 2
    return (int(found[0]), int(found[1])) if is_pair else None  # type: ignore[index]


def _both(first: int | None, second: int | None) -> tuple[int, int] | None:
    return None if first is None or second is None else (first, second)
