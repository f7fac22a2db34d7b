"""One input of a model: its sizes, number type and values, as a worker makes it."""

from dataclasses import dataclass

Axes = tuple[tuple[str, int], ...]
"""Sizes of named axes, sorted by name; hashable, which a dict is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """How the values of an input are made; seeded.

    Attributes:
        low, high: whole numbers from `low` to `high`, both included, or evenly distributed floats
            between them; `None` takes the usual values of the number type.
        counts_to: whole numbers that count up along the last axis and end before this one, such as
            the positions of tokens; the name of an axis until its size is known.
        path: a `.npy` file with the whole input; `None` makes the values.
        sha256: of that file.
    """

    low: float | None = None
    high: float | None = None
    counts_to: int | str | None = None
    path: str | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInput:
    """One input with all its sizes.

    Attributes:
        dtype: name in NumPy, such as `float32`, `int64` or `bool`.
        state: name of the output that is this input of the next inference, such as a cache of
            keys; `None` if it is not a state.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    values: Values
    state: str | None = None


def plain_input_name(name: str) -> str:
    """The name without what TensorFlow adds: `serving_default_ids:0` is `ids`."""
    return name.removeprefix("serving_default_").partition(":")[0]


def axes_text(axes: Axes) -> str | None:
    """The sizes as rows and platforms name them, `seq=128,time=50`; `None` without any."""
    return ",".join(f"{name}={size}" for name, size in axes) or None
