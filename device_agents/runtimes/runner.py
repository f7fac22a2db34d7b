"""The runtimes inside the worker process, `RUNNERS`, and what all of them share.

A runtime and its library are imported only on request.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import numpy as np

from fleetrank.device_agents.contract.runtime import (
    Array,
    LoadedModel,
    Runner,
    StatefulModel,
)
from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.errors import LostArtifactError, MissingLibraryError, UnsupportedError
from fleetrank.foundation.entry_points import EntryPointError
from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.files import file_sha256
from fleetrank.foundation.formats import OUTSIDE_RUNTIMES
from fleetrank.foundation.inputs import ModelInput, Values, plain_input_name
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
