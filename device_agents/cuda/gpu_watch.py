"""Reads a GPU from inside the worker: other users, memory, energy, conditions."""

import os
import time
from dataclasses import replace
from functools import partial

from fleetrank.device_agents.contract.capability import boolean_option
from fleetrank.device_agents.contract.gpu_backends import FLUSH_L2, TF32
from fleetrank.device_agents.contract.measurement import Conditions
from fleetrank.device_agents.contract.task import Execution, MeasureTask, Options
from fleetrank.device_agents.cuda import nvml
from fleetrank.device_agents.cuda.gpu_choice import VISIBLE, choose_gpu
from fleetrank.device_agents.cuda.gpu_use import (
    TorchGpuMemory,
    count_others,
    own_process,
    refuse_company,
    users,
)
from fleetrank.device_agents.cuda.nvml import Nvml
from fleetrank.device_agents.cuda.nvml_library import Gpu, GpuProcess, GpuReading
from fleetrank.device_agents.errors import MissingLibraryError
from fleetrank.device_agents.flags import NOTHING_SLOWS
from fleetrank.device_agents.linux.conditions import Shares, read_conditions
from fleetrank.device_agents.linux.energy import CounterSource, EnergySource, PolledSource
from fleetrank.device_agents.linux.worker_process import growth_bytes, usable_cpus
from fleetrank.foundation.vocabulary import EnergyMethod, MemoryMetric, Runtime

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


def with_gpu(host: Conditions, reading: GpuReading, n_others: int | None) -> Conditions:
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
            return with_gpu(host, GpuReading(), None)
        others = count_others(self.before, self._processes(), os.getpid(), is_open=self._is_open)
        return with_gpu(host, self._library.read(self._gpu), others)

    def _processes(self) -> tuple[GpuProcess, ...] | None:
        if self._library is None or self._gpu is None:
            return None
        return self._library.processes(self._gpu)
