"""One input of a model: its sizes, number type and values, as a worker makes it."""

from dataclasses import dataclass
from typing import Annotated

from fleetrank.foundation.user_file import Key

NAME_IN_A_FILE = r"^[^\x00-\x1f]{1,100}$"
"""Names of inputs and outputs are those of the file."""
WHOLE_NUMBERS = {
    "bool": (0, 1),
    **{f"uint{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)},
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
}
"""The smallest and the largest number of each type."""
DTYPES = ("float32", "float16", "float64", *WHOLE_NUMBERS)
"""What a card can state; a file may hold others."""
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
class NamedInput:
    """What a card, a file and a task say about an input in the same words."""

    name: Annotated[
        str,
        Key("name of the input in the file; for an entry point any name", pattern=NAME_IN_A_FILE),
    ]
    dtype: Annotated[str, Key("number type, by its name in NumPy", words=DTYPES)] = "float32"
    state: Annotated[
        str | None,
        Key(
            "name of the output that is this input of the next inference, such as a cache of "
            "keys; only with key 'workloads'",
            pattern=NAME_IN_A_FILE,
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInput(NamedInput):
    """One input with all its sizes."""

    shape: tuple[int, ...]
    values: Values = Values()


def plain_input_name(name: str) -> str:
    """The name without what TensorFlow adds: `serving_default_ids:0` is `ids`."""
    return name.removeprefix("serving_default_").partition(":")[0]


def axes_text(axes: Axes) -> str | None:
    """The sizes as rows and platforms name them, `seq=128,time=50`; `None` without any."""
    return ",".join(f"{name}={size}" for name, size in axes) or None
