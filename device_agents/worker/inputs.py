"""Seeded inputs of any type a network takes."""

from collections.abc import Sequence

import numpy as np

from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.device_agents.runtimes.runner import Array, TensorSpec


def make_inputs(specs: Sequence[TensorSpec], seed: int) -> list[Array]:
    """Makes one array per input: standard normal floats, integers a network can take as index.

    Signed and unsigned bytes are quantised images and use their whole range; other integers are
    0 or 1, which every table of embeddings has.

    Raises:
        UnsupportedError: an input of a type that is no number, such as a string.
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
        f"input {spec.name!r} has the type {spec.dtype!r}, for which no input can be made up",
        "use a model whose inputs are numbers or booleans",
    )
