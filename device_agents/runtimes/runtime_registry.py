"""Runtimes by name; a runtime and its library are imported only on request."""

import importlib
from collections.abc import Mapping

from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.runtimes.runner import Runner
from fleetrank.foundation.vocabulary import Runtime

RUNNERS: Mapping[Runtime, str] = {
    Runtime.ONNX: "fleetrank.device_agents.runtimes.onnx.onnx_runner:OnnxRunner",
    Runtime.TORCH: "fleetrank.device_agents.runtimes.torch.torch_runner:TorchRunner",
    Runtime.TFLITE: "fleetrank.device_agents.runtimes.tflite_runner:TfliteRunner",
    Runtime.EXECUTORCH: "fleetrank.device_agents.runtimes.executorch_runner:ExecutorchRunner",
}


def create_runner(runtime: Runtime) -> Runner:
    """Creates the runner of a runtime; the library is imported when the runner loads a file."""
    module_name, class_name = RUNNERS[runtime].split(":")
    runner: Runner = getattr(importlib.import_module(module_name), class_name)()
    return runner


def why_unsupported(execution: Execution) -> str | None:
    """Says which name the runtime does not support, or `None`; loads no library."""
    runner = create_runner(execution.runtime)
    return runner.capability.why_unsupported(execution, execution.runtime.value, "here")
