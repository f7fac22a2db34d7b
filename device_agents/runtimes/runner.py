"""The contract of a runtime inside the worker process, and the table of the runtimes, `RUNNERS`.

A runtime and its library are imported only on request.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fleetrank.device_agents.contract.capability import Capability
from fleetrank.device_agents.contract.task import Execution, Options
from fleetrank.device_agents.errors import MissingLibraryError
from fleetrank.foundation.inputs.model_input import Values
from fleetrank.foundation.registry import Registry
from fleetrank.foundation.vocabulary import Runtime

Array = NDArray[np.generic]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One input of an artifact; in `shape` all dynamic sizes are already set.

    Attributes:
        state: name of the output that is this input of the next inference; `None` if it is not a
            state.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    values: Values = field(default_factory=Values)
    state: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """The library of a runtime: the distribution, the module to import, and the extra to install.

    The doctor looks for it.
    """

    distribution: str
    module: str
    extra: str


class LoadedModel(Protocol):
    """An artifact that is ready to run; both properties may be plain attributes."""

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """The inputs in the order `set_inputs` takes them."""
        ...

    @property
    def settings(self) -> Options:
        """The settings that the runtime really uses, defaults included, sorted by name."""
        ...

    def set_inputs(self, arrays: Sequence[Array]) -> None:
        """Puts the inputs into the runtime's memory; not timed."""
        ...

    def run(self) -> None:
        """Runs one inference, synchronised: returns when the output is ready to read."""
        ...

    def outputs(self) -> list[Array]:
        """Copies the outputs of the last run; not timed."""
        ...


@runtime_checkable
class DeviceModel(LoadedModel, Protocol):
    """A model on a device that has its own memory and perhaps its own clock."""

    def copy_inputs(self) -> None:
        """Copies the inputs from the host to the same places again, synchronised."""
        ...

    def device_ns(self) -> int | None:
        """Duration of the last run by the device's clock; `None` if the runtime shows no stream."""
        ...


@runtime_checkable
class StatefulModel(LoadedModel, Protocol):
    """A model whose states stay in the runtime's memory: a run leaves them for the next one."""

    @property
    def copies_state(self) -> bool:
        """Whether a run copies its states in or out, beside what the file itself computes."""
        ...


@runtime_checkable
class SequenceModel(StatefulModel, Protocol):
    """A decoder whose file reads prompts and makes steps; `run` reads the prompt.

    Stale slots need no reset: a token sees only the slots up to its own position.
    """

    def set_steps(self, steps: Sequence[Sequence[Array]]) -> None:
        """Puts the inputs of all steps into the runtime's memory; not timed.

        Args:
            steps: by step, the inputs that are no states, in the order of `inputs`.
        """
        ...

    def step(self) -> None:
        """Makes the next step, synchronised.

        The first call after `run` makes the first one; the first follows the last one again.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What an integer of a quantised tensor means: `step` x (integer - `zero`)."""

    step: float
    zero: int


@runtime_checkable
class QuantizedModel(LoadedModel, Protocol):
    """A model whose file can state what the integers of its inputs and outputs mean."""

    @property
    def input_scales(self) -> Sequence[Scale | None]:
        """In the order of `inputs`; `None` for an input that is not quantised."""
        ...

    @property
    def output_scales(self) -> Sequence[Scale | None]:
        """In the order of `outputs`; `None` for an output that is not quantised."""
        ...


class Runner(Protocol):
    """One runtime. Its module imports the library inside `load`, not at its top."""

    capability: Capability
    """What it supports on a processor; `gpu_backends` has the entry for a GPU."""

    library: Library

    def version(self) -> str:
        """Version of the library, as the library prints it."""
        ...

    def admit(self, path: str) -> str:
        """Checks a file that this workspace did not make; returns the path that may be loaded.

        If reading a file can run code, this is a copy of the checked bytes. The check is a separate
        step before loading, so its time and memory are not counted for the model.

        Raises:
            BadArtifactError: the file contains more than a network.
        """
        ...

    def load(self, path: str, execution: Execution) -> LoadedModel:
        """Loads an artifact.

        Raises:
            PermanentError: damaged or hostile file, unknown option, unsupported operator.
            MissingLibraryError: the runtime is not installed; the remedy names the extra.
        """
        ...


def copies_state(model: LoadedModel) -> bool:
    """Whether a model has states that its runtime cannot write in place."""
    if all(spec.state is None for spec in model.inputs):
        return False
    return not isinstance(model, StatefulModel) or model.copies_state


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


def check_library(runtime: Runtime) -> None:
    """Checks that this host has the library of a runtime, which is not imported.

    Raises:
        MissingLibraryError: the library is not installed; the remedy names the extra.
    """
    library = RUNNERS.load(runtime).library
    if find_spec(library.module.partition(".")[0]) is None:
        raise MissingLibraryError(
            f"runtime {runtime} needs {library.distribution}, not installed",
            f"pip install 'fleetrank[{library.extra}]'",
        )


def why_unsupported(execution: Execution) -> str | None:
    """Says which name the runtime does not support, or `None`; loads no library."""
    runner = create_runner(execution.runtime)
    return runner.capability.why_unsupported(execution, execution.runtime.value, "here")
