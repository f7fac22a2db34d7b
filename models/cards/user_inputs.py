"""The keys `[[inputs]]` and `axes` of a user's card."""

import math
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from fleetrank.foundation.inputs.model_input import Values
from fleetrank.foundation.small_file import resolved
from fleetrank.models.cards.inputs import CardInput

AXIS_NAME = r"^[a-z][a-z0-9_]{0,19}$"
"""Axis names become part of a platform's name."""
_OF_A_FILE = r"^[^\x00-\x1f]{1,100}$"
"""Names of inputs and outputs are those of the file."""
_LARGEST_INPUT = 2**30
"""Elements of one input: 4 GiB in fp32."""
_LARGEST_VALUE = 2.0**53
"""Whole numbers up to here are exact as floats, which TOML and JSON may turn them into."""

Size = Annotated[int, Field(ge=1, le=2**31 - 1, strict=True)]
AxisName = Annotated[str, Field(pattern=AXIS_NAME)]
_Number = Annotated[float, Field(allow_inf_nan=False, ge=-_LARGEST_VALUE, le=_LARGEST_VALUE)]
Dtype = Literal[
    "float32", "float16", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"
]  # fmt: skip

_LIMITS = {
    "bool": (0, 1), "uint8": (0, 2**8 - 1), "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1), "int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1),
}  # fmt: skip


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class UserValues(_Model):
    """The rule of the values."""

    normal: Literal[True] | None = Field(
        default=None, description="standard normal; the word 'normal' is short for it"
    )
    below: Annotated[int, Field(ge=1, le=_LARGEST_VALUE, strict=True)] | None = Field(
        default=None, description="whole numbers from 0 to below this, such as a vocabulary's size"
    )
    constant: _Number | None = Field(default=None, description="the same value everywhere")
    range: tuple[_Number, _Number] | None = Field(
        default=None, description="evenly distributed from the first to the second, both included"
    )
    positions: Literal["context"] | None = Field(
        default=None,
        description="whole numbers that count up along the last axis and end before the size of "
        "the axis 'context': the places of tokens",
    )
    file: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description=".npy file of exactly this shape and type, beside the card"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                "give exactly one of normal, below, constant, range, positions and file"
            )
        if self.range is not None and self.range[0] > self.range[1]:
            raise ValueError("the first number of range is above the second")
        return self


def _as_values(value: object) -> object:
    """Accepts `normal` as short for `{normal = true}`."""
    return {"normal": True} if value == "normal" else value


class UserInput(_Model):
    """One input of the network, in the order of its arguments."""

    name: Annotated[str, Field(pattern=_OF_A_FILE)] = Field(
        description="name of the input in the file; for an entry point any name"
    )
    shape: tuple[Size | AxisName, ...] = Field(
        description="sizes, or names of axes: 'batch' is the sweep's batch, other axes get their "
        "sizes from the sweep's key 'axes'"
    )
    dtype: Dtype = Field(default="float32", description="number type")
    values: Annotated[UserValues | None, BeforeValidator(_as_values)] = Field(
        default=None,
        description="normal, or one of {below = N}, {constant = X}, {range = [A, B]}, "
        "{positions = 'context'}, {file = 'x.npy'}; by default normal for floats, 0 and 1 for "
        "whole numbers and booleans, the whole range for bytes",
    )

    state: Annotated[str, Field(pattern=_OF_A_FILE)] | None = Field(
        default=None,
        description="name of the output that is this input of the next inference, such as a cache "
        "of keys; only with key 'workloads'",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if math.prod(size for size in self.shape if isinstance(size, int)) > _LARGEST_INPUT:
            raise ValueError(f"input {self.name!r} has more than {_LARGEST_INPUT:,} elements")
        if self.values is not None:
            _check_fit(self.values, self.dtype)
        return self

    def as_card_input(self, folder: Path) -> CardInput:
        """The input; a relative path of values starts at the card's folder.

        Raises:
            OSError: the path cannot be resolved.
        """
        return CardInput(
            name=self.name,
            shape=self.shape,
            dtype=self.dtype,
            values=_values(self, folder),
            state=self.state,
        )


def _check_fit(rule: UserValues, dtype: str) -> None:
    """Rejects values that a type of whole numbers cannot hold."""
    if rule.positions is not None and dtype not in {"int32", "int64"}:
        raise ValueError(f"positions are int32 or int64, not {dtype}")
    if dtype.startswith("float"):
        return
    if rule.normal:
        raise ValueError(f"values of {dtype} cannot be normal")
    low, high = _LIMITS[dtype]
    highest = None if rule.below is None else rule.below - 1
    stated = (highest, rule.constant, *(rule.range or ()))
    for value in (value for value in stated if value is not None):
        if not (float(value).is_integer() and low <= value <= high):
            raise ValueError(f"{dtype} holds whole numbers from {low} to {high}, not {value:g}")


def _values(one: UserInput, folder: Path) -> Values:
    rule = one.values
    if rule is None or rule.normal:
        return Values()
    if rule.below is not None:
        return Values(low=0.0, high=float(rule.below - 1))
    if rule.constant is not None:
        return Values(low=rule.constant, high=rule.constant)
    if rule.range is not None:
        return Values(low=rule.range[0], high=rule.range[1])
    if rule.positions is not None:
        return Values(counts_to=rule.positions)
    return Values(path=str(resolved(folder / str(rule.file))))
