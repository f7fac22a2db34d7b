"""The flags of `benchmark_model` that state inputs.

Source: tensorflow/lite/tools/benchmark/benchmark_tflite_model.cc (2019 to 2025): inputs count in
the file's order, and another name is only a warning; a shape is `1,8`, of several inputs `1,8:1,8`;
a range is `NAME,LOW,HIGH` in whole numbers, both included. Without a range floats are -0.5 to 0.5
or 0 to 1, whole numbers 0 to 99, bytes their range, booleans 0 or 1. A range of booleans is
ignored.
"""

import re
from collections.abc import Sequence

from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.foundation.inputs import ModelInput, plain_input_name

_LAYERS = "--input_layer="
_PLAIN = re.compile(r"[A-Za-z0-9_./-]{1,100}")
"""Commas and colons separate names and shapes in the flags."""
_OTHER_NAME = re.compile(r"Tensor # \d+ is named (\S{1,200}) but flags call it (\S{1,200})")
_LARGEST = 2**31 - 1
_INDICES = frozenset({"int16", "int32", "int64"})


def why_not_stated(inputs: Sequence[ModelInput]) -> str | None:
    """Says which input the flags cannot state, or `None` when they can state all."""
    return next((reason for one in inputs if (reason := _why_not(one)) is not None), None)


def _why_not(one: ModelInput) -> str | None:
    values = one.values
    if values.path is not None:
        return f"input {one.name!r} has its values in a file, which is not copied to a phone"
    if not one.shape:
        return f"input {one.name!r} has no dimension, and benchmark_model cannot state its shape"
    if values.low is None or values.high is None:
        return None
    if one.dtype == "bool" and (values.low, values.high) != (0.0, 1.0):
        return f"benchmark_model ignores the values of input {one.name!r}: it is boolean"
    ends = (values.low, values.high)
    if all(float(end).is_integer() and abs(end) <= _LARGEST for end in ends):
        return None
    return (
        f"input {one.name!r} has values from {ends[0]:g} to {ends[1]:g}; benchmark_model takes "
        "whole numbers of 32 bits"
    )


def input_flags(inputs: Sequence[ModelInput]) -> tuple[str, ...]:
    """The flags for inputs that `why_not_stated` accepts; none without inputs."""
    if not inputs:
        return ()
    names = [
        one.name if _PLAIN.fullmatch(one.name) else f"input_{place}"
        for place, one in enumerate(inputs)
    ]
    shapes = (",".join(map(str, one.shape)) for one in inputs)
    ranges = [
        f"{name},{ends[0]:.0f},{ends[1]:.0f}"
        for name, one in zip(names, inputs, strict=True)
        if (ends := _range(one)) is not None
    ]
    return (
        f"{_LAYERS}{','.join(names)}",
        f"--input_layer_shape={':'.join(shapes)}",
        *([f"--input_layer_value_range={':'.join(ranges)}"] if ranges else []),
    )


def _range(one: ModelInput) -> tuple[float, float] | None:
    """The least and the largest value; `None` leaves them to the program."""
    low, high = one.values.low, one.values.high
    if one.dtype == "bool":
        return None
    if isinstance(one.values.counts_to, int):
        return _positions(one.shape[-1], one.values.counts_to)
    if low is not None and high is not None:
        return low, high
    # As on other devices: every table has the rows 0 and 1.
    return (0.0, 1.0) if one.dtype in _INDICES else None


def _positions(count: int, end: int) -> tuple[float, float]:
    """The position of a step exactly; of a prompt any in it, because no flag counts upwards.

    A graph with a dense mask computes the same for all of them.
    """
    return float(end - 1 if count == 1 else 0), float(end - 1)


def refuse_other_order(argv: Sequence[str], text: str) -> None:
    """Checks that the program did not give an input the sizes and values of another one.

    Raises:
        UnsupportedError: the file has an input of a stated name at another place.
    """
    flag = next((word for word in argv if word.startswith(_LAYERS)), _LAYERS)
    stated = set(flag.removeprefix(_LAYERS).split(","))
    for found, called in _OTHER_NAME.findall(text):
        name = plain_input_name(found)
        if name in stated and name != called:
            raise UnsupportedError(
                f"the file has input {name!r} where the card states {called!r}",
                "state [[inputs]] of the card in the file's order",
            )
