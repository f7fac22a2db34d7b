"""Makes the values of a model's inputs, as a task states them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fleetrank.device_agents.contract.runtime import Array
from fleetrank.device_agents.errors import LostArtifactError, UnsupportedError
from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.inputs import ModelInput, Values
from fleetrank.foundation.small_file import file_sha256


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
