"""What uses a GPU: the memory of this process's allocator, and other processes."""

import importlib
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath
from types import ModuleType

from fleetrank.device_agents.cuda.nvml_library import GpuProcess
from fleetrank.device_agents.errors import (
    MissingLibraryError,
    UnfitConditionsError,
    missing_library,
)
from fleetrank.device_agents.runtimes import torch_cuda

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
