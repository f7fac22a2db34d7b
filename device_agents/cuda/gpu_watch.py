"""Reads a GPU from inside the worker: other users, memory, energy, conditions."""

import hashlib
import importlib
import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from types import ModuleType

from fleetrank.device_agents.contract.agent import FLUSH_L2, TF32, DeviceFacts, boolean_option
from fleetrank.device_agents.contract.measurement import Conditions
from fleetrank.device_agents.contract.task import Execution, MeasureTask, Options, OptionValue
from fleetrank.device_agents.cuda import nvml
from fleetrank.device_agents.cuda.nvml import (
    Driver,
    Found,
    Gpu,
    GpuProcess,
    Hardware,
    Nvml,
    Reading,
)
from fleetrank.device_agents.errors import (
    MissingLibraryError,
    PermanentError,
    TransientError,
    UnfitConditionsError,
    UnusableDeviceError,
    missing_library,
)
from fleetrank.device_agents.host.conditions import Shares, read_conditions
from fleetrank.device_agents.host.energy import CounterSource, EnergySource, PolledSource
from fleetrank.device_agents.host.worker_process import growth_bytes, usable_cpus
from fleetrank.device_agents.runtimes import torch_cuda
from fleetrank.device_agents.timing import NOTHING_SLOWS
from fleetrank.foundation.vocabulary import EnergyMethod, MemoryMetric, Runtime, Tier

# Chooses the GPU, and checks whether this process may use it: pure.

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


# What uses a GPU: the memory of this process's allocator, and other processes.

_BROKERS = frozenset({"nvidia-cuda-mps-server"})
"""Listed beside the processes they pass work on for; they compute nothing themselves."""

Processes = Sequence[GpuProcess] | None


def users(processes: Processes) -> list[GpuProcess]:
    """The processes that may compute something."""
    return [it for it in processes or () if PurePosixPath(it.name or "").name not in _BROKERS]


def refuse_company(before: Processes) -> None:
    """Raises an error if other processes use the GPU.

    Args:
        before: the list before this process opened the GPU; `None` if the driver gives no list.

    Raises:
        UnfitConditionsError: the message names the processes.
    """
    others = users(before)
    if others:
        names = ", ".join(f"{it.name or 'a process'} ({it.pid})" for it in others[:5])
        raise UnfitConditionsError(
            f"{len(others)} other processes use the GPU: {names}",
            "end them, or set the device's option others to flag, to measure beside them",
        )


def own_process(before: Processes, now: Processes, pid: int) -> GpuProcess | None:
    """This process in a list; `None` if it cannot be identified."""
    new = _new(before, now)
    listed = next((it for it in new if it.pid == pid), None)
    if listed is not None or before is None:
        return listed
    return new[0] if len(new) == 1 else None


def count_others(before: Processes, now: Processes, pid: int, *, is_open: bool) -> int | None:
    """Counts processes other than this one; `None` if the driver does not list them.

    If our process cannot be identified, one of the new processes is assumed to be it.

    Args:
        before: the list before this process opened the GPU.
        now: the list now.
        pid: number of our process.
        is_open: this process has opened the GPU. If it is missing in the list, others may be too.
    """
    if now is None:
        return None
    n_users = len(users(now))
    if own_process(before, now, pid) is not None or _new(before, now):
        return n_users - 1
    return None if is_open and n_users == 0 else n_users


def _new(before: Processes, now: Processes) -> list[GpuProcess]:
    """Counts by number: several processes may have no number, and all of these are listed as 0."""
    known = Counter(it.pid for it in users(before))
    new = []
    for process in users(now):
        if known[process.pid] > 0:
            known[process.pid] -= 1
        else:
            new.append(process)
    return new


_FLUSH_FACTOR = 2
"""Twice the cache size, so that writing it replaces every cache line."""
_LEAST_FLUSH_BYTES = 64 * 1024 * 1024
"""For a GPU whose L2 cache size PyTorch does not report; the largest L2 cache has 126 MB."""


class TorchGpuMemory:
    """The caching allocator's figures, and a buffer to clear the L2 cache."""

    def __init__(self) -> None:
        self._torch: ModuleType | None = None
        self._buffer: object = None

    def open(self, *, flushes: bool) -> None:
        """Imports PyTorch and opens the GPU.

        Raises:
            MissingLibraryError: PyTorch is not installed.
            UnsupportedError: it cannot use the GPU; the message says why.
        """
        try:
            self._torch = importlib.import_module("torch")
        except ImportError as error:
            raise self._missing(error) from error
        torch_cuda.TorchGpu(self._torch).open()
        if flushes and self._buffer is None:
            cache = getattr(self._torch.cuda.get_device_properties(0), "L2_cache_size", 0)
            size = max(_FLUSH_FACTOR * cache, _LEAST_FLUSH_BYTES)
            # Created before the baseline is read, because it does not belong to the model.
            self._buffer = self._torch.empty(size, dtype=self._torch.int8, device="cuda:0")

    def start_peak(self) -> int:
        """Starts a new peak; returns what tensors hold now."""
        cuda = self._cuda()
        cuda.reset_peak_memory_stats()
        return int(cuda.memory_allocated())

    def peak_bytes(self) -> int:
        """The peak that tensors held since then."""
        return int(self._cuda().max_memory_allocated())

    def reserved_now_bytes(self) -> int:
        """The memory that the allocator holds on the GPU now."""
        return int(self._cuda().memory_reserved())

    def reserved_peak_bytes(self) -> int:
        """The largest memory that the allocator held since the peak began."""
        return int(self._cuda().max_memory_reserved())

    def flush(self) -> None:
        """Overwrites the L2 cache and waits until this is done."""
        if self._buffer is not None:
            self._buffer.zero_()  # type: ignore[attr-defined]
            self._cuda().synchronize()

    def _cuda(self) -> ModuleType:
        if self._torch is None:
            raise self._missing(None)
        cuda: ModuleType = self._torch.cuda
        return cuda

    @staticmethod
    def _missing(error: ImportError | None) -> MissingLibraryError:
        return missing_library("torch", "torch", error or ImportError("it was not opened"))


_SLOWING = {
    0x04: "power_cap",
    0x08: "hw_slowdown",
    0x20: "heat",
    0x40: "hw_heat",
    0x80: "power_brake",
    0x200: "board_limit",
    0x400: "reliability",
}
"""Bits that mean slower than the requested clocks; idle, chosen clocks and sync boost do not count.

Source: NVML 13, nvmlClocksEventReasons.
"""


def throttle_reasons(bits: int | None) -> str | None:
    """Names of the reasons that slow the GPU down, joined by commas; `none` if none applies."""
    if bits is None:
        return None
    return ",".join(name for bit, name in _SLOWING.items() if bits & bit) or NOTHING_SLOWS


def with_gpu(host: Conditions, reading: Reading, n_others: int | None) -> Conditions:
    """The host's conditions, with clock and temperature of the GPU instead of the processor's."""
    return replace(
        host,
        clock_mhz=_as_float(reading.sm_clock_mhz),
        clock_max_mhz=None,
        governor=None,
        temp_c=_as_float(reading.temp_c),
        memory_clock_mhz=_as_float(reading.memory_clock_mhz),
        power_mw=_as_float(reading.power_mw),
        throttle_reasons=throttle_reasons(reading.event_reasons),
        throttled_ns=reading.throttled_ns,
        other_processes=n_others,
    )


def _as_float(value: int | None) -> float | None:
    return None if value is None else float(value)


GRACE_S = 2.0
"""A process that has just ended, such as the last repeat's, may stay listed for a moment."""
_PAUSE_S = 0.1


def open_gpu_watch(task: MeasureTask) -> "GpuWatch":
    """Chooses the task's GPU, hides all others from this process, and checks for other users.

    Without `nvidia-ml-py` the process still measures, but only reads time and PyTorch's memory.

    Raises:
        FleetError: no driver, GPU not found, or in use by other processes.
    """
    library = open_library_or_none()
    gpu = use_gpu(library, task.gpu_uuid, task.execution)
    watch = GpuWatch(library, gpu, task.execution)
    if not task.allows_shared_gpu:
        watch.wait_until_alone(GRACE_S)
        refuse_company(watch.before)
    return watch


def open_library_or_none() -> Nvml | None:
    """The driver's library; `None` if only its Python binding is missing.

    Raises:
        UnusableDeviceError: the driver does not exist or does not work.
    """
    try:
        return nvml.open_nvml()
    except MissingLibraryError:
        return None


def use_gpu(library: Nvml | None, wanted: str | None, execution: Execution) -> Gpu | None:
    """Makes the GPU the only one that libraries loaded later can see.

    Raises:
        FleetError: the GPU does not exist, or may not be used.
    """
    gpu = None
    if library is not None:
        gpu = choose_gpu(library.find(), wanted=wanted, visible=os.environ.get(VISIBLE))
    uuid = wanted if gpu is None else gpu.uuid
    if uuid is not None:
        os.environ[VISIBLE] = uuid
    if not boolean_option(execution, TF32, default=False):
        # The only setting that cuBLAS, cuDNN and TensorRT all read, whichever library calls them.
        os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
    else:
        os.environ.pop("NVIDIA_TF32_OVERRIDE", None)
    return gpu


def gpu_energy(library: Nvml, gpu: Gpu) -> EnergySource | None:
    """The energy counter of a GPU, or else its power integrated; `None` if it has neither."""
    if library.energy_mj(gpu) is not None:
        return CounterSource(EnergyMethod.NVML_COUNTER, partial(library.energy_mj, gpu))
    if library.power_mw(gpu) is not None:
        poll = partial(library.power_mw, gpu)
        return PolledSource(EnergyMethod.NVML_POLLED, poll, time.perf_counter_ns)
    return None


class GpuWatch:
    """The `Watch` of a GPU; if the library is `None`, it has only PyTorch's figures."""

    def __init__(self, library: Nvml | None, gpu: Gpu | None, execution: Execution) -> None:
        self._library = library
        self._gpu = gpu
        self._flushes = boolean_option(execution, FLUSH_L2, default=False)
        self._runtime = execution.runtime
        is_torch = execution.runtime is Runtime.TORCH
        self.memory_metric = MemoryMetric.CUDA_ALLOCATED if is_torch else MemoryMetric.NVML_PROCESS
        # PyTorch also clears the cache; only ONNX Runtime without this option needs no PyTorch.
        self._torch = TorchGpuMemory() if is_torch or self._flushes else None
        self._reserved_baseline: int | None = None
        self._is_open = False
        self.before = self._processes()

    def wait_until_alone(self, longest_s: float) -> None:
        """Checks again for a limited time if other processes are listed."""
        deadline_s = time.monotonic() + longest_s
        while users(self.before) and time.monotonic() < deadline_s:
            time.sleep(_PAUSE_S)
            self.before = self._processes()

    def conditions(self, used: Shares) -> Conditions:
        """Reads the current conditions."""
        return self._seen(read_conditions(usable_cpus(), used))

    def warm(self, before: Conditions) -> Conditions:
        """Reads the GPU again under load: an idle GPU's clocks, heat and power mean nothing."""
        self._is_open = True
        return self._seen(before)

    def start_memory(self) -> int | None:
        """Also opens the GPU, which is not part of loading a model."""
        if self._torch is not None:
            self._torch.open(flushes=self._flushes)
            self._reserved_baseline = self._torch.reserved_now_bytes()
        if self._torch is not None and self._runtime is Runtime.TORCH:
            return self._torch.start_peak()
        if self._processes() is None:
            return None
        return self.process_bytes() or 0  # not in the list: it holds no memory yet

    def start_run_memory(self) -> None:
        """Does nothing: one peak since before loading. A CUDA graph fills its pool only once."""

    def peak_bytes(self) -> int | None:
        """ONNX Runtime's arena never shrinks, so the memory it holds is its peak."""
        if self._runtime is Runtime.TORCH and self._torch is not None:
            return self._torch.peak_bytes()
        return self.process_bytes()

    def reserved_bytes(self) -> int | None:
        """Peak memory that an allocator reserved on the device."""
        if self._runtime is not Runtime.TORCH or self._torch is None:
            return None
        return growth_bytes(self._reserved_baseline, self._torch.reserved_peak_bytes())

    def process_bytes(self) -> int | None:
        """GPU memory of this process; `None` if not reported, as for MIG instances."""
        own = own_process(self.before, self._processes(), os.getpid())
        return None if own is None else own.used_bytes

    def flush(self) -> None:
        """Clears the caches before a run."""
        if self._flushes and self._torch is not None:
            self._torch.flush()

    def energy_source(self) -> EnergySource | None:
        """The energy counter; a MIG instance has none, and the GPU's includes its neighbours."""
        if self._library is None or self._gpu is None:
            return None
        return gpu_energy(self._library, self._gpu)

    def settings(self) -> Options:
        """Settings that the row must record."""
        return ((FLUSH_L2, self._flushes), ("has_nvml", self._library is not None))

    def _seen(self, host: Conditions) -> Conditions:
        if self._library is None or self._gpu is None:
            return with_gpu(host, Reading(), None)
        others = count_others(self.before, self._processes(), os.getpid(), is_open=self._is_open)
        return with_gpu(host, self._library.read(self._gpu), others)

    def _processes(self) -> tuple[GpuProcess, ...] | None:
        if self._library is None or self._gpu is None:
            return None
        return self._library.processes(self._gpu)
