"""Runtimes by name; a runtime and its library are imported only on request."""

from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.runtimes.runner import Runner
from fleetrank.foundation.registry import Registry
from fleetrank.foundation.vocabulary import Runtime

_HERE = "fleetrank.device_agents.runtimes"
RUNNERS: Registry[type[Runner]] = Registry(
    "runtime",
    {
        Runtime.ONNX: f"{_HERE}.onnx.onnx_runner:OnnxRunner",
        Runtime.TORCH: f"{_HERE}.torch.torch_runner:TorchRunner",
        Runtime.TFLITE: f"{_HERE}.tflite_runner:TfliteRunner",
        Runtime.EXECUTORCH: f"{_HERE}.executorch_runner:ExecutorchRunner",
    },
)


def create_runner(runtime: Runtime) -> Runner:
    """Creates the runner of a runtime; the library is imported when the runner loads a file."""
    return RUNNERS.load(runtime)()


def default_backend(runtime: Runtime) -> str:
    """The backend on a processor if a sweep names none; verification uses it too.

    Raises:
        UnknownNameError: the runtime is not registered.
    """
    return create_runner(runtime).capability.default_backend


def why_unsupported(execution: Execution) -> str | None:
    """Says which name the runtime does not support, or `None`; loads no library."""
    runner = create_runner(execution.runtime)
    return runner.capability.why_unsupported(execution, execution.runtime.value, "here")
