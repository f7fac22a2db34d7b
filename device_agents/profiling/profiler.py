"""The contract of the code that profiles one runtime, and the table of the members."""

from collections.abc import Sequence
from typing import Protocol

from fleetrank.device_agents.contract.gpu_backends import GPU_BACKENDS
from fleetrank.device_agents.contract.kernel_profile import Kernel
from fleetrank.device_agents.contract.plugin_backends import plugin_of
from fleetrank.device_agents.contract.runtime import LoadedModel, Runner
from fleetrank.device_agents.contract.task import Execution
from fleetrank.foundation.registry import Registry
from fleetrank.foundation.vocabulary import Mode, Runtime

Run = Sequence[Kernel]
"""The calls of one inference, in order, each with its own time."""


class Profiler(Protocol):
    """Profiles one model in one process. Its module imports no library at its top."""

    runner: Runner
    """It admits files and states the version."""

    def load(self, path: str, execution: Execution) -> LoadedModel:
        """Loads an artifact so that its kernels are timed; raises the errors of `Runner.load`."""
        ...

    def last_runs(self, count: int) -> Sequence[Run]:
        """Ends the profile and returns the calls of the last inferences, oldest first.

        Raises:
            BadOutputError: the runtime's own profile cannot be read.
        """
        ...


_HERE = "fleetrank.device_agents.profiling"
PROFILERS: Registry[type[Profiler]] = Registry(
    "profiler",
    {
        Runtime.ONNX: f"{_HERE}.onnx_profiler:OnnxProfiler",
        Runtime.TORCH: f"{_HERE}.torch_profiler:TorchProfiler",
        Runtime.EXECUTORCH: f"{_HERE}.executorch_profiler:ExecutorchProfiler",
    },
)


def why_not_profiled(execution: Execution) -> str | None:
    """Says why a worker cannot profile this, or `None`; loads no library.

    Source for GPUs: onnxruntime issue 7390 (a node's event ends when its kernel is queued, so the
    sum is a small part of the run) and pull request 9875 (times of the kernels themselves need a
    build with `--enable_cuda_profiling`, which is off by default).
    """
    if execution.backend in GPU_BACKENDS:
        return (
            "a GPU runs kernels after the processor has started them, and the runtime reports the "
            "time of the start alone: use NVIDIA's Nsight Systems"
        )
    if plugin_of(execution.backend):
        return "ONNX Runtime sees the nodes of a plugin as one: use the maker's own profiler"
    if execution.runtime not in PROFILERS:
        return f"the Python library of {execution.runtime} reports no times of kernels"
    if execution.mode is not Mode.EAGER:
        return f"mode {execution.mode} has no nodes to time: profile mode eager"
    if execution.workload.steps is not None:
        return (
            f"{execution.workload} is a prompt and steps: profile the workloads prefill and decode"
        )
    return None
