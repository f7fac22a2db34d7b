"""A `.pt2` on an NVIDIA GPU: eager, compiled, or replayed as one CUDA graph."""

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from fleetrank.device_agents.contract.capability import boolean_option
from fleetrank.device_agents.contract.failures import says_device_lost
from fleetrank.device_agents.contract.gpu_backends import CUDNN_BENCHMARK, TF32
from fleetrank.device_agents.contract.runtime import Array
from fleetrank.device_agents.contract.task import Execution, Options, OptionValue
from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.device_agents.runtimes.torch_tensors import as_arrays, as_numpy_has_it, as_tensor
from fleetrank.foundation.inputs import ModelInput
from fleetrank.foundation.vocabulary import Mode

if TYPE_CHECKING:
    from torch.cuda import Event

DEVICE = "cuda:0"
"""The only GPU that this process sees."""
_WARM_RUNS = 3
"""Runs before a graph is captured: libraries create their workspaces in the first runs. Source:
PyTorch, notes on CUDA graphs, which name 3."""
Module = Callable[..., object]


class TorchGpu:
    """The calls that differ from the processor; tests pass a version that runs on the processor."""

    device = DEVICE

    def __init__(self, torch: ModuleType) -> None:
        self._torch = torch

    def open(self) -> None:
        """Opens the GPU.

        Raises:
            UnsupportedError: PyTorch cannot use it; the message says why.
        """
        cuda = self._torch.cuda
        if not self._torch.version.cuda:
            raise UnsupportedError(
                f"this PyTorch ({self._torch.__version__}) is built without CUDA",
                "install a build for your driver: https://pytorch.org/get-started/locally",
            )
        try:
            cuda.init()
            capability = cuda.get_device_capability(0)
            # Only now a context exists; it uses memory and raises the GPU's idle power.
            cuda.synchronize()
        except (RuntimeError, AssertionError, cuda.DeferredCudaCallError) as error:
            if says_device_lost(str(error)):
                raise
            raise UnsupportedError(
                f"PyTorch cannot use the GPU: {error}",
                "compare the CUDA version of `nvidia-smi` with torch.version.cuda; update a driver "
                "that is too old for it",
            ) from error
        built_for = cuda.get_arch_list()
        if built_for and not _can_run(capability, built_for):
            raise UnsupportedError(
                f"this PyTorch has no code for compute capability {capability[0]}.{capability[1]}",
                f"install a build for it; this one supports {', '.join(built_for)}",
            )

    def event(self) -> "Event":
        """An event in the stream that knows its time."""
        return self._torch.cuda.Event(enable_timing=True)

    def synchronize(self) -> None:
        """Waits until the GPU has finished all work."""
        self._torch.cuda.synchronize()

    def capture(self, run: Callable[[], object]) -> tuple[Callable[[], None], object]:
        """Records one run as a graph; returns a function that replays it, and the run's output."""
        cuda = self._torch.cuda
        side = cuda.Stream()
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            for _ in range(_WARM_RUNS):
                run()
        cuda.current_stream().wait_stream(side)
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            output = run()
        return graph.replay, output

    def facts(self) -> dict[str, OptionValue]:
        """Versions and sizes, as settings."""
        properties = self._torch.cuda.get_device_properties(0)
        cudnn = self._torch.backends.cudnn.version()
        return {
            "cuda": str(self._torch.version.cuda),
            "cudnn": "none" if cudnn is None else int(cudnn),
            "sm_count": int(properties.multi_processor_count),
        }


class TorchCudaModel:
    """One module on the GPU, its inputs and its last output; it fulfils `DeviceModel`."""

    def __init__(
        self,
        torch: ModuleType,
        gpu: TorchGpu,
        module: Module,
        specs: Sequence[ModelInput],
        execution: Execution,
    ) -> None:
        self._torch, self._gpu, self._module = torch, gpu, module
        self._specs = tuple(specs)
        self.inputs = tuple(as_numpy_has_it(spec) for spec in specs)
        self._mode = execution.mode
        self.settings = _settings(gpu, execution)
        self._host: tuple[object, ...] = ()
        self._arguments: tuple[object, ...] = ()
        self._start, self._end = gpu.event(), gpu.event()
        self._replay: Callable[[], None] | None = None
        self._output: object = None

    def set_inputs(self, arrays: Sequence[Array]) -> None:
        """Copies the inputs into the memory of the first inputs, which a CUDA graph refers to."""
        self._host = tuple(
            as_tensor(self._torch, array, spec)
            for array, spec in zip(arrays, self._specs, strict=True)
        )
        if self._arguments:
            self.copy_inputs()
        else:
            self._arguments = tuple(tensor.to(self._gpu.device) for tensor in self._host)  # type: ignore[attr-defined]
        self._gpu.synchronize()

    def copy_inputs(self) -> None:
        """Copies from ordinary memory, as a program that prepares an image does."""
        for target, source in zip(self._arguments, self._host, strict=True):
            target.copy_(source)  # type: ignore[attr-defined]
        self._gpu.synchronize()

    def run(self) -> None:
        """Runs one inference; in graph mode the first run captures the graph."""
        if self._mode is Mode.GRAPHS and self._replay is None:
            with self._torch.inference_mode():
                self._replay, self._output = self._capture()
        self._start.record()
        self.launch()
        self._end.record()
        self._gpu.synchronize()

    def launch(self) -> None:
        """Queues one inference without waiting for it; a benchmark of our clocks calls it."""
        if self._replay is not None:
            self._replay()
            return
        self._output = None
        with self._torch.inference_mode():
            self._output = self._module(*self._arguments)

    def device_ns(self) -> int | None:
        """Duration from before the first kernel is queued until the last has finished."""
        ms: float = self._start.elapsed_time(self._end)
        return round(ms * 1e6)

    def outputs(self) -> list[Array]:
        """Copies the outputs of the last run."""
        return as_arrays(self._torch, self._output)

    def _capture(self) -> tuple[Callable[[], None], object]:
        try:
            return self._gpu.capture(lambda: self._module(*self._arguments))
        except RuntimeError as error:
            if "captur" not in str(error):
                raise
            raise UnsupportedError(
                f"the model cannot be captured as a CUDA graph: {error}", "use mode eager"
            ) from error


def configure(torch: ModuleType, execution: Execution) -> None:
    """Sets what PyTorch may do to fp32 products, and whether cuDNN tests its algorithms."""
    tf32 = boolean_option(execution, TF32, default=False)
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = boolean_option(execution, CUDNN_BENCHMARK, default=False)


def _settings(gpu: TorchGpu, execution: Execution) -> Options:
    stated: dict[str, OptionValue] = {
        CUDNN_BENCHMARK: boolean_option(execution, CUDNN_BENCHMARK, default=False),
        TF32: boolean_option(execution, TF32, default=False),
        "mode": execution.mode.value,
        "threads": execution.threads,
    }
    return tuple(sorted((stated | gpu.facts()).items()))


def _can_run(capability: tuple[int, int], built_for: Sequence[str]) -> bool:
    """Whether machine code of this major version, or portable code of an older one, exists.

    Source: CUDA programming guide: `sm_86` runs on 8.6 and later of 8, `compute_80` on all later.
    """
    own = capability[0] * 10 + capability[1]
    for name in built_for:
        kind, _, digits = name.partition("_")
        number = int("".join(it for it in digits if it.isdigit()) or 0)
        is_same_major = number // 10 == capability[0]
        if number <= own and (kind == "compute" or is_same_major):
            return True
    return False
