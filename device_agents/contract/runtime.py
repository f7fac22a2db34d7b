"""The contract of a runtime: what a package gives to `fleetrank.runtimes`, and what `load` returns.

A runtime of fleetrank's own fulfils `Runner`; one of another package also `OutsideRunner`. The
module of a runtime imports its library inside `load`, not at its top.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fleetrank.device_agents.contract.capability import Capability
from fleetrank.device_agents.contract.task import Execution, Options
from fleetrank.foundation.formats import FormatReader
from fleetrank.foundation.inputs import ModelInput

Array = NDArray[np.generic]


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """The library of a runtime, for which the doctor looks.

    Attributes:
        distribution: its name for pip.
        module: the module to import.
        extra: the extra of fleetrank that installs it; `None` for a runtime of another package.
    """

    distribution: str
    module: str
    extra: str | None = None

    @property
    def wanted(self) -> str:
        """What pip has to install, as a shell needs it."""
        return self.distribution if self.extra is None else f"'fleetrank[{self.extra}]'"


class LoadedModel(Protocol):
    """An artifact that is ready to run; both properties may be plain attributes."""

    @property
    def inputs(self) -> Sequence[ModelInput]:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """How many nodes of a graph run on the backend, of how many."""

    backend_nodes: int
    graph_nodes: int


@runtime_checkable
class PlacedModel(LoadedModel, Protocol):
    """A model whose runtime says where the nodes run."""

    @property
    def placed(self) -> Placed:
        """The nodes that the backend took."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Products:
    """The convolutions and matrix products of a file, and how many take integers."""

    of_integers: int
    all: int


class Runner(Protocol):
    """One runtime. Its module imports the library inside `load`, not at its top."""

    capability: Capability
    """What it supports on a processor; `GPU_RUNTIMES` has the entry for a GPU."""

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


@runtime_checkable
class CountingRunner(Runner, Protocol):
    """A runtime that shows which kernels it chooses for a file."""

    def products(self, path: str, execution: Execution) -> Products | None:
        """Of the graph that `load` runs; `None` on a backend that does not show it.

        It opens the file again, and is not timed.
        """
        ...


class OutsideRunner(Runner, FormatReader, Protocol):
    """A runtime of another package: the class that its entry point names, made without arguments.

    Seven fields: `format` and `describe` of `FormatReader`; `capability`, `library`, `version`,
    `admit` and `load` of `Runner`. The classes of models above that extend `LoadedModel` are
    optional, as `CountingRunner` is.
    """
