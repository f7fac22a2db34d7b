"""Programs that run on phones, by runtime; a member is imported only on request."""

import importlib
from collections.abc import Mapping

from fleetrank.device_agents.android.runners.phone_runner import PhoneRunner
from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.device_agents.runtimes import runtime_registry
from fleetrank.foundation.vocabulary import Runtime

RUNNERS: Mapping[Runtime, str] = {
    Runtime.TFLITE: "fleetrank.device_agents.android.runners.benchmark_model:BenchmarkModel",
    Runtime.ONNX: "fleetrank.device_agents.android.runners.perf_test:PerfTest",
    Runtime.EXECUTORCH: "fleetrank.device_agents.android.runners.executor_runner:ExecutorRunner",
}


def create_phone_runner(runtime: Runtime) -> PhoneRunner:
    """Makes the runner of a runtime.

    Raises:
        UnsupportedError: no program on a phone runs it; the remedy names the supported runtimes.
    """
    if runtime not in RUNNERS:
        known = ", ".join(sorted(RUNNERS))
        raise UnsupportedError(f"no program runs {runtime.value} on a phone", f"use {known}")
    module_name, class_name = RUNNERS[runtime].split(":")
    runner: PhoneRunner = getattr(importlib.import_module(module_name), class_name)()
    return runner


def default_backend(runtime: Runtime) -> str:
    """The backend of a sweep that names none; that of a processor if no program runs the runtime.

    Raises:
        UnknownNameError: the runtime is not registered.
    """
    if runtime not in RUNNERS:
        return runtime_registry.default_backend(runtime)
    return create_phone_runner(runtime).capability.default_backend


def why_unsupported(execution: Execution) -> str | None:
    """Says why no program on a phone supports this, or `None`; does not contact a phone."""
    try:
        return create_phone_runner(execution.runtime).why_unsupported(execution)
    except UnsupportedError as error:
        return str(error)
