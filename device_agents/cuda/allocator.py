"""Reads PyTorch's GPU memory and clears the cache, inside the worker."""

import importlib
from types import ModuleType

from fleetrank.device_agents.errors import MissingLibraryError
from fleetrank.device_agents.runtimes.options import missing_library
from fleetrank.device_agents.runtimes.torch import torch_cuda

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
