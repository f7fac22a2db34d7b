"""The worker on a GPU that is not there: NVML is a fake, kernels run on the processor.

Everything else is the real thing: protocol, runners, energy windows, flags.
"""

import importlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fleetrank.device_agents.cuda import gpu_watch
from fleetrank.device_agents.runtimes import onnx_cuda

sys.path.insert(0, str(Path(__file__).parent))

from fake_gpu import FakeGpuLibrary

from fleetrank.device_agents.contract.task import Execution, OptionValue
from fleetrank.device_agents.cuda import nvml
from fleetrank.device_agents.runtimes import torch_cuda
from fleetrank.device_agents.worker.__main__ import main


class Event:
    """A mark on the processor's clock."""

    def record(self) -> None:
        self.ns = time.perf_counter_ns()

    def elapsed_time(self, other: "Event") -> float:
        return (other.ns - self.ns) / 1e6


class ProcessorAsGpu(torch_cuda.TorchGpu):
    device = "cpu"

    def open(self) -> None:
        if os.environ.get("CUDA_FAKE_FAULT") == "old_driver":
            super().open()

    def event(self) -> Event:
        return Event()

    def synchronize(self) -> None:
        if os.environ.get("CUDA_FAKE_FAULT") == "lost":
            raise RuntimeError("CUDA error: unknown error")
        if os.environ.get("CUDA_FAKE_FAULT") == "full":
            raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")

    def capture(self, run: Callable[[], object]) -> tuple[Callable[[], None], object]:
        """As a graph does: the same memory for the output, at every replay."""
        leaves = self._torch.utils._pytree.tree_leaves
        output = run()

        def replay() -> None:
            with self._torch.inference_mode():
                for kept, made in zip(leaves(output), leaves(run()), strict=True):
                    kept.copy_(made)

        return replay, output

    def facts(self) -> dict[str, OptionValue]:
        return {"cuda": "13.0", "cudnn": 91002, "sm_count": 132}


class ProcessorProvider(onnx_cuda.OnnxGpu):
    device = "cpu"

    def providers(self, execution: Execution, stream: int | None) -> onnx_cuda.Providers:
        super().providers(execution, stream)
        return [("CPUExecutionProvider", {})]

    def preload(self, ort: object) -> None:
        return


class NoAllocator:
    """PyTorch's processor build counts no memory."""

    def open(self, *, flushes: bool) -> None:
        importlib.import_module("torch")

    def start_peak(self) -> int:
        return 1000

    def peak_bytes(self) -> int:
        return 5000

    def reserved_now_bytes(self) -> int:
        return 2000

    def reserved_peak_bytes(self) -> int:
        return 9000

    def flush(self) -> None:
        return


if __name__ == "__main__":
    nvml.open_nvml = FakeGpuLibrary
    gpu_watch.TorchGpuMemory = NoAllocator
    torch_cuda.TorchGpu = ProcessorAsGpu
    onnx_cuda.OnnxGpu = ProcessorProvider
    sys.exit(main())
