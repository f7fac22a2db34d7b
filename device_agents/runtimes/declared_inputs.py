"""Matches the inputs that a task states with those that a file has, and makes their values."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.errors import LostArtifactError, UnsupportedError
from fleetrank.device_agents.runtimes.runner import Array, TensorSpec
from fleetrank.foundation.inputs.model_input import ModelInput, Values, plain_input_name
from fleetrank.foundation.small_file import file_sha256

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


def specs_of(found: Sequence[FoundInput], execution: Execution) -> tuple[TensorSpec, ...]:
    """The inputs with all sizes: those that the task states, otherwise a dynamic batch is set.

    Raises:
        UnsupportedError: a size has no value, or the stated inputs are not those of the file.
    """
    if not execution.inputs:
        return tuple(
            TensorSpec(
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


def _spec(one: FoundInput, stated: ModelInput) -> TensorSpec:
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
    return TensorSpec(
        name=one.name,
        shape=stated.shape,
        dtype=one.dtype,
        values=stated.values,
        state=stated.state,
    )


def make_inputs(specs: Sequence[TensorSpec], seed: int) -> list[Array]:
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


def _make(spec: TensorSpec, rng: np.random.Generator) -> Array:
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


def _usual(spec: TensorSpec, dtype: np.dtype[Any], rng: np.random.Generator) -> Array:
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


def _no_input(spec: TensorSpec) -> UnsupportedError:
    return UnsupportedError(
        f"no input can be generated for input {spec.name!r}: its type is {spec.dtype!r}",
        "use a model whose inputs are numbers or booleans",
    )


def _read(spec: TensorSpec, values: Values, path: str) -> Array:
    try:
        is_same = file_sha256(Path(path)) == values.sha256
        array: Array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise LostArtifactError(
            f"the values of input {spec.name!r} cannot be read on this host: {error}",
            "copy the file to the same path on the device's host, as numpy.save writes it",
        ) from error
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
