"""The inputs that a card states: sizes may be named axes, whose values a sweep gives."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated

from fleetrank.foundation.inputs import WHOLE_NUMBERS, Axes, ModelInput, NamedInput, Values
from fleetrank.foundation.user_file import NO_OTHER_KEYS, Checked, Key, Short
from fleetrank.foundation.workload import CONTEXT, TOKENS
from fleetrank.models.errors import CardError

BATCH = "batch"
"""The axis whose size is the batch of a sweep."""
LONGEST_AXIS = 64
"""Letters of an axis: names of Hugging Face have up to 40, and become part of a platform's name."""
AXIS_NAME = rf"^[a-z][a-z0-9_]{{0,{LONGEST_AXIS - 1}}}$"
_TERM = rf"([a-z][a-z0-9_]{{0,{LONGEST_AXIS - 1}}}|[0-9]{{1,9}})"
AXIS_SUM = rf"^{AXIS_NAME[1:-1]}$|^{_TERM}( [+*-] {_TERM}){{1,3}}$"
"""Exporters write the size of one axis by those of others: `past_sequence_length + 1`."""
_LARGEST_INPUT = 2**30
"""Elements of one input: 4 GiB in fp32."""
_LARGEST_VALUE = 2.0**53
"""Whole numbers up to here are exact as floats, which TOML and JSON may turn them into."""
AxisName = Annotated[str, Key(pattern=AXIS_NAME)]
Size = Annotated[int, Key(ge=1, le=2**31 - 1)]
AxisSize = Annotated[int, Key(ge=0, le=2**31 - 1)]
"""Zero is an empty cache; not every file runs with it."""
_Number = Annotated[float, Key(ge=-_LARGEST_VALUE, le=_LARGEST_VALUE)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRule:
    """The rule of the values; exactly one key is given."""

    __pydantic_config__ = NO_OTHER_KEYS

    normal: Annotated[
        bool | None, Key("standard normal; the word 'normal' is short for it", words=(True,))
    ] = None
    below: Annotated[
        int | None,
        Key("whole numbers from 0 to below this, such as a vocabulary's size", ge=1, le=2**53),
    ] = None
    constant: Annotated[_Number | None, Key("the same value everywhere")] = None
    range: Annotated[
        tuple[_Number, _Number] | None,
        Key("evenly distributed from the first to the second, both included"),
    ] = None
    positions: Annotated[
        str | None,
        Key(
            "whole numbers that count up along the last axis and end before the size of the axis "
            "'context': the places of tokens",
            words=(CONTEXT,),
        ),
    ] = None
    file: Annotated[
        str | None, Key(".npy file of exactly this shape and type, beside the card", pattern=".")
    ] = None

    def values(self) -> Values:
        """The values, as a worker makes them."""
        if self.below is not None:
            return Values(low=0.0, high=float(self.below - 1))
        if self.constant is not None:
            return Values(low=self.constant, high=self.constant)
        if self.range is not None:
            return Values(low=self.range[0], high=self.range[1])
        return Values(counts_to=self.positions, path=self.file)

    def stated(self) -> dict[str, object]:
        """The one key that is given, and its value."""
        given = ((one.name, getattr(self, one.name)) for one in fields(self))
        return {name: value for name, value in given if value is not None}


def _valid_rule(rule: ValueRule) -> ValueRule:
    if len(rule.stated()) != 1:
        raise ValueError("give exactly one of normal, below, constant, range, positions and file")
    if rule.range is not None and rule.range[0] > rule.range[1]:
        raise ValueError("the first number of range is above the second")
    return rule


@dataclass(frozen=True, slots=True, kw_only=True)
class CardInput(NamedInput):
    """One input of the network, in the order of its arguments; a file's may be of any type."""

    __pydantic_config__ = NO_OTHER_KEYS

    shape: Annotated[
        tuple[Size | Annotated[str, Key(pattern=AXIS_SUM)], ...],
        Key(
            "sizes, or names of axes: 'batch' is the sweep's batch, other axes get their sizes "
            "from the sweep's key 'axes'; 'past + 1' is computed"
        ),
    ]
    values: Annotated[
        Annotated[
            ValueRule,
            Checked(_valid_rule),
            Short(lambda given: {"normal": True} if given == "normal" else given),
        ]
        | None,
        Key(
            "normal, or one of {below = N}, {constant = X}, {range = [A, B]}, "
            "{positions = 'context'}, {file = 'x.npy'}; by default normal for floats, 0 and 1 for "
            "whole numbers and booleans, the whole range for bytes"
        ),
    ] = None

    @property
    def path(self) -> str | None:
        """The file with the values; `None` without one."""
        return None if self.values is None else self.values.file


def valid_input(one: CardInput) -> CardInput:
    """Rejects an input that is too large, and values that a type of whole numbers cannot hold.

    Raises:
        ValueError: what is wrong with it.
    """
    if math.prod(size for size in one.shape if isinstance(size, int)) > _LARGEST_INPUT:
        raise ValueError(f"input {one.name!r} has more than {_LARGEST_INPUT:,} elements")
    rule = one.values or ValueRule()
    if rule.positions is not None and one.dtype not in {"int32", "int64"}:
        raise ValueError(f"positions are int32 or int64, not {one.dtype}")
    if one.dtype.startswith("float"):
        return one
    if rule.normal:
        raise ValueError(f"values of {one.dtype} cannot be normal")
    low, high = WHOLE_NUMBERS[one.dtype]
    values = rule.values()
    for value in (value for value in (values.low, values.high) if value is not None):
        if not (value.is_integer() and low <= value <= high):
            raise ValueError(f"{one.dtype} holds whole numbers from {low} to {high}, not {value:g}")
    return one


def axis_names(inputs: Iterable[CardInput], *, takes_tokens: bool = False) -> tuple[str, ...]:
    """The named axes whose sizes a sweep gives by name, each once, sorted.

    The batch is not among them, nor are tokens and context where a workload gives these.
    """
    names = {name for one in inputs for size in one.shape for name in names_in(size)}
    return tuple(sorted(names - {BATCH} - ({TOKENS, CONTEXT} if takes_tokens else set())))


def names_in(size: int | str) -> list[str]:
    """The axes that a size of an input is computed from; its own name mostly."""
    return re.findall(r"[a-z]\w*", str(size))


def computed(size: int | str, sizes: Mapping[str, int]) -> int:
    """A size from those of its axes, a sum or difference of products."""
    terms = (term.split(" * ") for term in str(size).replace(" - ", " + -1 * ").split(" + "))
    return sum(math.prod(sizes[x] if x in sizes else int(x) for x in term) for term in terms)


def has_batch(inputs: Iterable[CardInput]) -> bool:
    """Whether any input has a batch axis."""
    return any(BATCH in names_in(size) for one in inputs for size in one.shape)


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
        CardError: an axis has no size, or a difference of axes is below 0.
    """
    sizes = {**dict(axes), BATCH: batch}
    found = []
    for one in inputs:
        values = Values() if one.values is None else one.values.values()
        named = (*one.shape, *([values.counts_to] if values.counts_to else []))
        missing = [name for size in named for name in names_in(size) if name not in sizes]
        if missing:
            raise CardError(
                f"axis {missing[0]!r} of input {one.name!r} has no size",
                f"give it in the sweep, `axes: {{{missing[0]}: 128}}`, or as a default in the "
                f"card, `axes = {{ {missing[0]} = 128 }}`",
            )
        shape = tuple(computed(size, sizes) for size in one.shape)
        if min(shape, default=0) < 0:
            raise CardError(
                f"a size of input {one.name!r} is below 0: {shape} of {one.shape}",
                "give larger sizes in the sweep's `axes`",
            )
        if values.path is not None:
            values = replace(values, sha256=hashes.get(values.path))
        if isinstance(values.counts_to, str):
            values = replace(values, counts_to=sizes[values.counts_to])
        found.append(
            ModelInput(name=one.name, shape=shape, dtype=one.dtype, values=values, state=one.state)
        )
    return tuple(found)
