"""The contract of a runtime inside the worker process, and the table of the runtimes, `RUNNERS`.

A runtime and its library are imported only on request. `make_inputs` makes seeded inputs of every
type that a network takes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fleetrank.device_agents.contract.capability import Capability
from fleetrank.device_agents.contract.task import Execution, Options
from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.foundation.registry import Registry
from fleetrank.foundation.vocabulary import Runtime

Array = NDArray[np.generic]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One input of an artifact; in `shape` a dynamic batch is already set."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """The library of a runtime: the distribution, the module to import, and the extra to install.

    The doctor looks for it.
    """

    distribution: str
    module: str
    extra: str


def with_batch(name: str, sizes: Iterable[int | None], batch: int) -> tuple[int, ...]:
    """The sizes of an input; its first size is set to the batch if it is dynamic (`None`).

    Raises:
        UnsupportedError: another size is dynamic: the user did not choose its value.
    """
    shape = [batch if size is None and axis == 0 else size for axis, size in enumerate(sizes)]
    known = tuple(size for size in shape if size is not None)
    if len(known) < len(shape):
        raise UnsupportedError(
            f"input {name!r} has dynamic sizes besides the batch: {shape}".replace("None", "?"),
            "export the model with fixed sizes; for an ONNX image, give input_size in its card",
        )
    return known


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


def make_inputs(specs: Sequence[TensorSpec], seed: int) -> list[Array]:
    """Makes one array per input: standard normal floats, integers that a network can use as index.

    Signed and unsigned bytes are quantised images and use their whole range. Other integers are 0
    or 1, which every embedding table has.

    Raises:
        UnsupportedError: an input of a type that is not numeric, such as a string.
    """
    rng = np.random.default_rng(seed)
    return [_make(spec, rng) for spec in specs]


def _make(spec: TensorSpec, rng: np.random.Generator) -> Array:
    try:
        dtype = np.dtype(spec.dtype)
    except TypeError as error:
        raise _no_input(spec) from error
    if dtype.kind == "f":
        return rng.standard_normal(spec.shape, dtype=np.float32).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, spec.shape).astype(dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        low, high = (info.min, info.max) if dtype.itemsize == 1 else (0, 1)
        return rng.integers(low, high, spec.shape, dtype=dtype, endpoint=True)
    raise _no_input(spec)


def _no_input(spec: TensorSpec) -> UnsupportedError:
    return UnsupportedError(
        f"no input can be generated for input {spec.name!r}: its type is {spec.dtype!r}",
        "use a model whose inputs are numbers or booleans",
    )
