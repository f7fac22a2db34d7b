"""Programs that run on phones, by name and by runtime; a member is imported only on request.

Adding one is one line of the table; its name is then an option of a phone's device file, and
`virtual_phone.imitation.imitated_NAME` stands in for it on a virtual phone.
"""

from collections.abc import Callable

from fleetrank.device_agents.android.programs.phone_program import PhoneProgram
from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.foundation.registry import Registry
from fleetrank.foundation.vocabulary import Runtime

_FOLDER = "fleetrank.device_agents.android.programs"
_TABLE = (
    (Runtime.TFLITE, "benchmark_model", f"{_FOLDER}.benchmark_model:BenchmarkModel"),
    (Runtime.EXECUTORCH, "executor_runner", f"{_FOLDER}.executor_runner:ExecutorRunner"),
    (Runtime.ONNX, "onnxruntime_perf_test", f"{_FOLDER}.perf_test:PerfTest"),
)
PROGRAMS = Registry[Callable[[], PhoneProgram]](
    "program", {name: member for _, name, member in _TABLE}
)
NAME_OF_RUNTIME = {runtime: name for runtime, name, _ in _TABLE}


def create_program(runtime: Runtime) -> PhoneProgram:
    """Makes the program of a runtime.

    Raises:
        UnsupportedError: no program on a phone runs it; the remedy names the supported runtimes.
    """
    if runtime not in NAME_OF_RUNTIME:
        known = ", ".join(sorted(NAME_OF_RUNTIME))
        raise UnsupportedError(f"no program runs {runtime.value} on a phone", f"use {known}")
    return PROGRAMS.load(NAME_OF_RUNTIME[runtime])()


def why_unsupported(execution: Execution) -> str | None:
    """Says why no program on a phone supports this, or `None`; does not contact a phone."""
    try:
        return create_program(execution.runtime).why_unsupported(execution)
    except UnsupportedError as error:
        return str(error)
