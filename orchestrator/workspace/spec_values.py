"""The kinds of values in a sweep specification, with the range of each."""

from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, ByteSize, Field, WithJsonSchema

T = TypeVar("T")

_LONGEST_SIZE = 40
"""Maximum characters of a size with its unit."""
_LARGEST_OPTION = 2.0**63
"""Option values are stored as JSON and in columns, whose integers have 64 bits."""


def _as_list(value: object) -> object:
    """Accepts a single value as a list of one."""
    return [value] if isinstance(value, str | int | float) else value


def _not_empty(values: tuple[T, ...]) -> tuple[T, ...]:
    if not values:
        raise ValueError("give at least one")
    return values


def _option_value(value: object) -> object:
    """Runs before the union check, whose error message would list every type."""
    is_number = isinstance(value, int | float) and abs(value) < _LARGEST_OPTION
    if not (is_number or isinstance(value, str)):
        raise ValueError("give a number below 2^63, true, false or text")
    return value


def _size(value: object) -> object:
    """Checks the size first, because Pydantic's conversion can overflow."""
    if isinstance(value, str) and len(value) > _LONGEST_SIZE:
        raise ValueError("give a number of bytes, or text such as '2GiB'")
    return value


def _affinity(value: object) -> object:
    is_cores = isinstance(value, list | tuple) and all(
        type(core) is int and 0 <= core < 2**16 for core in value
    )
    if not (value in ("first_cores", "free") or (is_cores and value)):
        raise ValueError("give first_cores, free, or a list of core numbers")
    return value


OneOrMany = Annotated[
    tuple[T, ...],
    AfterValidator(_not_empty),
    BeforeValidator(_as_list, json_schema_input_type=T | list[T]),
]
OptionSpec = Annotated[bool | int | float | str, BeforeValidator(_option_value)]
Count = Annotated[int, Field(ge=1, le=10**7, strict=True)]
Threads = Annotated[int, Field(ge=1, le=4096, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**32, strict=True)]
LONGEST_S = 1e8
"""Three years; larger values overflow the system's timers."""
Seconds = Annotated[float, Field(gt=0, le=LONGEST_S, strict=True, allow_inf_nan=False)]
MemoryLimit = Annotated[
    ByteSize,
    BeforeValidator(_size),
    Field(ge=2**20, lt=2**63),
    WithJsonSchema({"type": "integer", "minimum": 2**20}, mode="serialization"),
]
Share = Annotated[float, Field(gt=0, lt=1, strict=True)]
Affinity = Annotated[Literal["first_cores", "free"] | tuple[int, ...], BeforeValidator(_affinity)]
