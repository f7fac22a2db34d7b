"""The runtimes inside the worker process, `RUNNERS`, and what all of them share.

A runtime and its library are imported only on request.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from fleetrank.device_agents.contract.runtime import LoadedModel, Runner, StatefulModel
from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.errors import MissingLibraryError
from fleetrank.foundation.entry_points import EntryPointError
from fleetrank.foundation.formats import OUTSIDE_RUNTIMES
from fleetrank.foundation.registry import Registry, UnknownNameError
from fleetrank.foundation.vocabulary import Runtime

if TYPE_CHECKING:
    from fleetrank.foundation.entry_points import Outside

Call = TypeVar("Call")


class PromptAndSteps(Generic[Call]):
    """The part of a `SequenceModel` that all runtimes share: what is run, and in which order."""

    def __init__(self, prompt: Call) -> None:
        """`prompt` is what `run` executes; `set_inputs` may replace it."""
        self._prompt = prompt
        self._steps: list[Call] = []
        self._next = 0

    def run(self) -> None:
        """Runs one inference; of `generate`, it reads the prompt."""
        self._next = 0
        self._run(self._prompt)

    def step(self) -> None:
        """Makes the next step; after the last one, the first."""
        call = self._steps[self._next]
        self._next = (self._next + 1) % len(self._steps)
        self._run(call)

    def _run(self, call: Call) -> None:
        raise NotImplementedError


def copies_state(model: LoadedModel) -> bool:
    """Whether a model has states that its runtime cannot write in place."""
    if all(spec.state is None for spec in model.inputs):
        return False
    return not isinstance(model, StatefulModel) or model.copies_state


_HERE = "fleetrank.device_agents.runtimes"
RUNNERS: Registry[type[Runner]] = Registry(
    "runtime",
    {
        Runtime.ONNX: f"{_HERE}.onnx_runner:OnnxRunner",
        Runtime.TORCH: f"{_HERE}.torch_runner:TorchRunner",
        Runtime.TFLITE: f"{_HERE}.tflite_runner:TfliteRunner",
        Runtime.EXECUTORCH: f"{_HERE}.executorch_runner:ExecutorchRunner",
    },
    cast("Outside[type[Runner]]", OUTSIDE_RUNTIMES),
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


def check_library(runtime: Runtime) -> None:
    """Checks that this host has the library of a runtime, which is not imported.

    Raises:
        MissingLibraryError: the library is not installed; the remedy names the extra.
    """
    library = RUNNERS.load(runtime).library
    if find_spec(library.module.partition(".")[0]) is None:
        raise MissingLibraryError(
            f"runtime {runtime} needs {library.distribution}, not installed",
            f"pip install {library.wanted}",
        )


def why_unsupported(execution: Execution) -> str | None:
    """Says which name the runtime does not support, or `None`; loads no library.

    A runtime of another package can be missing on this host, and be installed on the driver's.
    """
    try:
        runner = create_runner(execution.runtime)
    except (UnknownNameError, EntryPointError) as error:
        return error.message
    return runner.capability.why_unsupported(execution, execution.runtime.value, "here")
