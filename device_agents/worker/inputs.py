"""Seeded inputs of every type that a network takes."""

from collections.abc import Sequence

import numpy as np

from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.device_agents.runtimes.runner import Array, TensorSpec


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
