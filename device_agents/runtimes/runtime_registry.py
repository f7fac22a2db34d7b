"""Runtimes by name; a runtime and its library are imported only on request."""

from collections.abc import Callable

from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.runtimes.runner import Runner
from fleetrank.foundation.registry import Registry
from fleetrank.foundation.vocabulary import Runtime

RUNTIMES = Registry[Callable[[], Runner]](
    "runtime",
    {
        Runtime.ONNX: "fleetrank.device_agents.runtimes.onnx.onnx_runner:OnnxRunner",
        Runtime.TORCH: "fleetrank.device_agents.runtimes.torch.torch_runner:TorchRunner",
        Runtime.TFLITE: "fleetrank.device_agents.runtimes.tflite_runner:TfliteRunner",
        Runtime.EXECUTORCH: "fleetrank.device_agents.runtimes.executorch_runner:ExecutorchRunner",
    },
)


def create_runner(runtime: Runtime) -> Runner:
    """Creates the runner of a runtime; the library is imported when the runner loads a file."""
    return RUNTIMES.load(runtime)()


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
