"""The contract of a runtime inside the worker process, and the table of the runtimes, `RUNNERS`.

A runtime and its library are imported only on request.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fleetrank.device_agents.contract.agent import Capability
from fleetrank.device_agents.contract.task import Execution, Options
from fleetrank.device_agents.errors import LostArtifactError, MissingLibraryError, UnsupportedError
from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.files import file_sha256
from fleetrank.foundation.inputs import ModelInput, Values, plain_input_name
from fleetrank.foundation.registry import Registry
from fleetrank.foundation.vocabulary import Runtime

Array = NDArray[np.generic]


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


# States of a model, such as the cache of a decoder: which output is which input next time.


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePair:
    """Places of a state in the inputs and in the outputs of a file."""

    input: int
    output: int


def state_pairs(
    specs: Sequence[ModelInput], outputs: Sequence[str], *, has_names: bool
) -> tuple[StatePair, ...]:
    """The states of a file; empty if the task states none.

    Args:
        specs: the inputs in the file's order.
        outputs: names of the outputs in the file's order.
        has_names: the file keeps the names of its outputs. Otherwise the last outputs are the
            states, in the order of the inputs.

    Raises:
        UnsupportedError: the file lacks an output that the card states.
    """
    places = [place for place, spec in enumerate(specs) if spec.state is not None]
    wanted = [str(specs[place].state) for place in places]
    known = {name: place for place, name in enumerate(outputs)}
    if all(name in known for name in wanted):
        found = [known[name] for name in wanted]
    elif has_names or len(outputs) < len(wanted):
        missing = [name for name in wanted if name not in known]
        raise UnsupportedError(
            f"the file has no output {', '.join(missing)}, which the card states as the next "
            f"value of a state; its outputs are {', '.join(outputs)}",
            "correct `state` of [[inputs]] in the card, or export the file with these outputs",
        )
    else:
        found = list(range(len(outputs) - len(wanted), len(outputs)))
    return tuple(
        StatePair(input=place, output=output) for place, output in zip(places, found, strict=True)
    )


def check_state(spec: ModelInput, shape: Sequence[object], dtype: str) -> None:
    """Checks that an output can be the next value of a state.

    Raises:
        UnsupportedError: its sizes or its type differ, as those of a cache that grows.
    """
    if list(shape) == list(spec.shape) and dtype == spec.dtype:
        return
    raise UnsupportedError(
        f"state {spec.name!r} is {spec.dtype} of {list(spec.shape)}, its next value "
        f"{spec.state!r} is {dtype} of {list(shape)}",
        "export the model with a cache of fixed size, or remove `state` from the card",
    )


# Matches the inputs that a task states with those that a file has, and makes their values.

_FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
_INDICES = frozenset({"int32", "int64"})
"""Types that exporters turn into one another: floats by precision, int64 into int32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundInput:
    """One input as a file has it.

    Attributes:
        sizes: `None` where the file leaves a size open.
    """

    name: str
    sizes: tuple[int | None, ...]
    dtype: str


def has_states(execution: Execution) -> bool:
    """Whether the task states an input that is a state."""
    return any(one.state is not None for one in execution.inputs)


def specs_of(found: Sequence[FoundInput], execution: Execution) -> tuple[ModelInput, ...]:
    """The inputs with all sizes: those that the task states, otherwise a dynamic batch is set.

    Raises:
        UnsupportedError: a size has no value, or the stated inputs are not those of the file.
    """
    if not execution.inputs:
        return tuple(
            ModelInput(
                name=one.name,
                shape=with_batch(one.name, one.sizes, execution.batch),
                dtype=one.dtype,
            )
            for one in found
        )
    stated = _in_order(found, execution.inputs)
    return tuple(_spec(one, wanted) for one, wanted in zip(found, stated, strict=True))


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
            "state its sizes with [[inputs]] in the card, or export the model with fixed sizes",
        )
    return known


def _in_order(found: Sequence[FoundInput], stated: Sequence[ModelInput]) -> tuple[ModelInput, ...]:
    """The stated inputs in the file's order: by name if all names agree, otherwise by place.

    Exporters rename inputs and keep their order.
    """
    if len(found) != len(stated):
        raise UnsupportedError(
            f"the file takes {len(found)} inputs ({', '.join(one.name for one in found)}), the "
            f"card states {len(stated)}",
            "give each input of the file one [[inputs]] table in the card",
        )
    by_name = {one.name: one for one in stated}
    names = [plain_input_name(one.name) for one in found]
    if set(names) == by_name.keys():
        return tuple(by_name[name] for name in names)
    return tuple(stated)


def _spec(one: FoundInput, stated: ModelInput) -> ModelInput:
    fits = len(one.sizes) == len(stated.shape) and all(
        size in (None, wanted) for size, wanted in zip(one.sizes, stated.shape, strict=True)
    )
    is_kin = any({stated.dtype, one.dtype} <= kin for kin in (_FLOATS, _INDICES))
    if not fits or not (stated.dtype == one.dtype or is_kin):
        sizes = ", ".join("?" if size is None else str(size) for size in one.sizes)
        raise UnsupportedError(
            f"input {one.name!r} is {one.dtype} of [{sizes}] in the file, the card states "
            f"{stated.name!r} as {stated.dtype} of {list(stated.shape)}",
            "correct name, order, dtype or shape of [[inputs]] in the card",
        )
    return replace(stated, name=one.name, dtype=one.dtype)


def make_inputs(specs: Sequence[ModelInput], seed: int) -> list[Array]:
    """Makes one array per input: by the rule of its values, otherwise by its type.

    Without a rule: standard normal floats, integers that a network can use as index. Signed and
    unsigned bytes are quantised images and use their whole range. Other integers are 0 or 1, which
    every embedding table has.

    Raises:
        UnsupportedError: an input of a type that is not numeric, such as a string; or a file with
            values has another shape or type.
        LostArtifactError: a file with values is not on this host, or has changed.
    """
    rng = np.random.default_rng(seed)
    return [_make(spec, rng) for spec in specs]


def _make(spec: ModelInput, rng: np.random.Generator) -> Array:
    try:
        dtype = np.dtype(spec.dtype)
    except TypeError as error:
        raise _no_input(spec) from error
    values = spec.values
    if values.path is not None:
        return _read(spec, values, values.path)
    if isinstance(values.counts_to, int):
        first = values.counts_to - spec.shape[-1]
        return np.broadcast_to(np.arange(first, values.counts_to, dtype=dtype), spec.shape).copy()
    if values.low is not None and values.high is not None:
        return _between(values.low, values.high, spec.shape, dtype, rng)
    return _usual(spec, dtype, rng)


def _between(
    low: float, high: float, shape: tuple[int, ...], dtype: np.dtype[Any], rng: np.random.Generator
) -> Array:
    if dtype.kind == "f":
        return rng.uniform(low, high, shape).astype(dtype)
    return rng.integers(int(low), int(high), shape, endpoint=True).astype(dtype)


def _usual(spec: ModelInput, dtype: np.dtype[Any], rng: np.random.Generator) -> Array:
    """Values of an input without a rule, by its type."""
    if dtype.kind == "f":
        return rng.standard_normal(spec.shape, dtype=np.float32).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, spec.shape).astype(dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        low, high = (info.min, info.max) if dtype.itemsize == 1 else (0, 1)
        return rng.integers(low, high, spec.shape, dtype=dtype, endpoint=True)
    raise _no_input(spec)


def _no_input(spec: ModelInput) -> UnsupportedError:
    return UnsupportedError(
        f"no input can be generated for input {spec.name!r}: its type is {spec.dtype!r}",
        "use a model whose inputs are numbers or booleans",
    )


def _read(spec: ModelInput, values: Values, path: str) -> Array:
    remedy = "copy the file to the same path on the device's host, as numpy.save writes it"
    message = f"the values of input {spec.name!r} cannot be read on this host"
    with failing_as(LostArtifactError, message, remedy):
        is_same = file_sha256(Path(path)) == values.sha256
        array: Array = np.load(path, allow_pickle=False)[...]  # an archive is not an array
    if not is_same:
        raise LostArtifactError(
            f"the values of input {spec.name!r} in {path} have changed", "start a new sweep"
        )
    if array.shape != spec.shape or array.dtype.kind != np.dtype(spec.dtype).kind:
        raise UnsupportedError(
            f"the values of input {spec.name!r} in {path} have shape {array.shape} and type "
            f"{array.dtype}, not {spec.shape} and {spec.dtype}",
            "save an array of the stated shape and type, or correct the card",
        )
    return array.astype(spec.dtype)
