"""The inputs that a card states: sizes may be named axes, whose values a sweep gives."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from fleetrank.foundation.inputs.model_input import Axes, ModelInput, Values
from fleetrank.foundation.inputs.workload import CONTEXT, TOKENS
from fleetrank.models.errors import CardError

BATCH = "batch"
"""The axis whose size is the batch of a sweep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardInput:
    """One input as the card states it.

    Attributes:
        shape: sizes, or names of axes.
        dtype: name in NumPy.
        state: name of the output that is this input of the next inference; `None` if it is none.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    values: Values
    state: str | None = None


def axis_names(inputs: Iterable[CardInput], *, takes_tokens: bool = False) -> tuple[str, ...]:
    """The named axes whose sizes a sweep gives by name, each once, sorted.

    The batch is not among them, nor are tokens and context where a workload gives these.
    """
    names = {size for one in inputs for size in one.shape if isinstance(size, str)}
    return tuple(sorted(names - {BATCH} - ({TOKENS, CONTEXT} if takes_tokens else set())))


def has_batch(inputs: Iterable[CardInput]) -> bool:
    """Whether any input has a batch axis."""
    return any(BATCH in one.shape for one in inputs)


def sized(
    inputs: Iterable[CardInput], axes: Axes, batch: int, hashes: Mapping[str, str]
) -> tuple[ModelInput, ...]:
    """The inputs with the sizes of their axes.

    Args:
        inputs: as the card states them.
        axes: sizes of the named axes.
        batch: size of the axis `batch`.
        hashes: path to sha256 of the files with values.

    Raises:
        CardError: an axis has no size.
    """
    sizes = {**dict(axes), BATCH: batch}
    found = []
    for one in inputs:
        named = (*one.shape, one.values.counts_to)
        missing = [size for size in named if isinstance(size, str) and size not in sizes]
        if missing:
            raise CardError(
                f"axis {missing[0]!r} of input {one.name!r} has no size",
                f"give it in the sweep, `axes: {{{missing[0]}: 128}}`, or as a default in the "
                f"card, `axes = {{ {missing[0]} = 128 }}`",
            )
        shape = tuple(sizes[size] if isinstance(size, str) else size for size in one.shape)
        values = one.values
        if values.path is not None:
            values = replace(values, sha256=hashes.get(values.path))
        if isinstance(values.counts_to, str):
            values = replace(values, counts_to=sizes[values.counts_to])
        found.append(
            ModelInput(name=one.name, shape=shape, dtype=one.dtype, values=values, state=one.state)
        )
    return tuple(found)
