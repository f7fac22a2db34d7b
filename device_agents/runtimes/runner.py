"""The contract of a runtime inside the worker process; `registry.py` lists its members."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fleetrank.device_agents.contract.capability import Capability
from fleetrank.device_agents.contract.task import Execution, Options
from fleetrank.device_agents.errors import UnsupportedError

Array = NDArray[np.generic]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One input of an artifact: `shape` with a free batch already set."""

    name: str
    shape: tuple[int, ...]
    dtype: str


def with_batch(name: str, sizes: Iterable[int | None], batch: int) -> tuple[int, ...]:
    """The sizes of an input, its first set to the batch where it is free (`None`).

    Raises:
        UnsupportedError: another one is free: any figure would be of a size that nobody chose.
    """
    shape = [batch if size is None and axis == 0 else size for axis, size in enumerate(sizes)]
    known = tuple(size for size in shape if size is not None)
    if len(known) < len(shape):
        raise UnsupportedError(
            f"input {name!r} leaves sizes free beside the batch: {shape}".replace("None", "?"),
            "export the model with fixed sizes; for an ONNX image, give input_size in its card",
        )
    return known


class LoadedModel(Protocol):
    """An artifact made ready to run; both properties may be plain attributes."""

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """The inputs in the order `set_inputs` takes them."""
        ...

    @property
    def settings(self) -> Options:
        """What the runtime was really given, defaults included, sorted by name."""
        ...

    def set_inputs(self, arrays: Sequence[Array]) -> None:
        """Puts the inputs into the runtime's memory; not timed."""
        ...

    def run(self) -> None:
        """One inference, synchronised: returns when the output is ready to read."""
        ...

    def outputs(self) -> list[Array]:
        """Copies of the last run's outputs; not timed."""
        ...


@runtime_checkable
class DeviceModel(LoadedModel, Protocol):
    """A model on a device with memory and perhaps a clock of its own."""

    def copy_inputs(self) -> None:
        """Copies the inputs from the host into the same places again, synchronised."""
        ...

    def device_ns(self) -> int | None:
        """The last run by the device's clock; `None` where the runtime shows no stream."""
        ...


class Runner(Protocol):
    """One runtime. Its module imports the library inside `load`, not at its top."""

    capability: Capability
    """What it knows on a processor; a GPU's stands in `gpu_backends`."""

    def version(self) -> str:
        """Version of the library, of the form the library itself prints."""
        ...

    def admit(self, path: str) -> str:
        """Checks a file not made by this workspace; returns the path of what may be loaded.

        Where reading a file can run code, that is a copy of the bytes that were checked. A step
        before loading, so that neither its time nor its memory is charged to the model.

        Raises:
            BadArtifactError: the file holds more than a network.
        """
        ...

    def load(self, path: str, execution: Execution) -> LoadedModel:
        """Loads an artifact.

        Raises:
            PermanentError: damaged or hostile file, unknown option, unsupported operator.
            MissingLibraryError: the runtime is not installed; the remedy names the extra.
        """
        ...
