"""The only JSON codec of the messages between processes; strict.

Every field is written, and every field is required when reading. So two program versions that
disagree raise an error immediately and do not fill in defaults.
"""

import base64
import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from fleetrank.foundation.errors import FleetError

T = TypeVar("T")
Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
REMEDY = "write it with the same version of fleetrank that reads it"
_CONVERSIONS: Mapping[tuple[object, type], Callable[[Any], object]] = {
    (float, int): float,
    (Path, str): Path,
    (bytes, str): partial(base64.b64decode, validate=True),
}
"""From the annotated type and the type in JSON."""
_INTEGERS = range(-(2**63), 2**63)
"""Those that a column of the table holds."""
_NUMBER = "a finite number within 64 bits"


class CodecError(FleetError):
    """A text is not the message that its reader expects, or a value has no form in JSON."""


def to_json(value: object) -> str:
    """Writes a frozen dataclass of the project's own types as one line of JSON, in ASCII.

    So the name of a file that is not UTF-8 also survives a pipe.

    Raises:
        CodecError: a type that the codec does not support, NaN, infinity, or an integer beyond 64
            bits.
    """
    return json.dumps(to_plain(value), separators=(",", ":"))


def from_json(cls: type[T], text: str) -> T:
    """Reads the output of `to_json`.

    Raises:
        CodecError: not JSON, or a field is unknown, missing, of the wrong type, an integer beyond
            64 bits or not a finite number; it is named.
    """
    return from_plain(cls, parse_json(text))


def parse_json(text: str) -> Json:
    """Parses JSON and rejects what only Python accepts: NaN, and a key given twice.

    Raises:
        CodecError: the text is not strict JSON.
    """

    def refuse(name: str) -> Json:
        raise ValueError(f"{name} is not JSON")

    try:
        plain: Json = json.loads(text, parse_constant=refuse, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        raise CodecError(f"not JSON: {error}", REMEDY) from error
    return plain


def to_plain(value: object) -> Json:
    """Turns dataclasses into objects, enums into their values, tuples into arrays, paths into text.

    Bytes become Base64.

    Raises:
        CodecError: the same as `to_json`.
    """
    if isinstance(value, Enum):
        return to_plain(value.value)
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int | float):
        if not _is_in_range(value):
            raise CodecError(
                f"{value} is not {_NUMBER}, so it has no form in JSON",
                "use None for a missing number",
            )
        return value
    if isinstance(value, Path | bytes):
        return str(value) if isinstance(value, Path) else base64.b64encode(value).decode()
    if isinstance(value, tuple):
        return [to_plain(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    raise CodecError(
        f"the codec does not support the type {type(value).__name__}",
        "use dataclasses, enums, tuples, paths, strings, numbers and None",
    )


def from_plain(cls: type[T], plain: Json) -> T:
    """Builds a value of type `cls` from parsed JSON; the inverse of `to_plain`.

    Raises:
        CodecError: the same as `from_json`.
    """
    return cast(T, _decode(cls, plain, cls.__name__))


def _decode(hint: object, plain: Json, where: str) -> object:
    if isinstance(hint, type) and is_dataclass(hint):
        return _decode_dataclass(hint, plain, where)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _decode_enum(hint, plain, where)
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return _decode_union(get_args(hint), plain, where)
    if origin is tuple:
        return _decode_tuple(get_args(hint), plain, where)
    if isinstance(plain, int | float) and not _is_in_range(plain):
        raise _ill_typed(_NUMBER, plain, where)
    convert = _CONVERSIONS.get((hint, type(plain)))
    if convert is not None:
        with suppress(ValueError):
            return convert(plain)
    # `type is`, because True is an instance of int but must not be accepted as one.
    if hint in (str, int, float, bool, NoneType) and type(plain) is hint:
        return plain
    raise _ill_typed(hint, plain, where)


def _decode_dataclass(cls: type, plain: Json, where: str) -> object:
    if not isinstance(plain, dict):
        raise _ill_typed(cls, plain, where)
    hints = _hints(cls)
    for name in plain:
        if name not in hints:
            raise CodecError(f"{where} has no field {name!r}", REMEDY)
    for name in hints:
        if name not in plain:
            raise CodecError(f"{where} lacks the field {name!r}", REMEDY)
    return cls(**{n: _decode(hint, plain[n], f"{where}.{n}") for n, hint in hints.items()})


def _decode_enum(cls: type[Enum], plain: Json, where: str) -> Enum:
    if type(plain) is str:
        with suppress(ValueError):
            return cls(plain)
    raise _ill_typed(cls, plain, where)


def _decode_union(choices: tuple[object, ...], plain: Json, where: str) -> object:
    if plain is None and NoneType in choices:
        return None
    # An exact match first: 1 in `str | int | float | bool` is the integer, not 1.0 or True.
    exact = [choice for choice in choices if choice is type(plain)]
    others = [choice for choice in choices if choice is not NoneType]
    if not exact and len(others) > 1:
        raise _ill_typed(" or ".join(_name(choice) for choice in others), plain, where)
    return _decode(exact[0] if exact else others[0], plain, where)


def _decode_tuple(items: tuple[object, ...], plain: Json, where: str) -> tuple[object, ...]:
    if not isinstance(plain, list):
        raise _ill_typed("array", plain, where)
    if len(items) == 2 and items[1] is Ellipsis:
        # The samples: ten thousand integers, checked without a function call for each.
        if items[0] is int and set(map(type, plain)) == {int}:
            numbers = cast("list[int]", plain)
            if min(numbers) in _INTEGERS and max(numbers) in _INTEGERS:
                return tuple(numbers)
        return tuple(_decode(items[0], item, f"{where}[{i}]") for i, item in enumerate(plain))
    if len(items) != len(plain):
        raise _ill_typed(f"array of {len(items)}", plain, where)
    pairs = enumerate(zip(items, plain, strict=True))
    return tuple(_decode(hint, item, f"{where}[{i}]") for i, (hint, item) in pairs)


def _is_in_range(number: float) -> bool:
    # A range looks a subclass of `int` up one by one.
    return int(number) in _INTEGERS if isinstance(number, int) else math.isfinite(number)


@cache
def _hints(cls: type) -> Mapping[str, object]:
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in fields(cls)}


def _name(hint: object) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint)


def _ill_typed(hint: object, plain: Json, where: str) -> CodecError:
    shown = json.dumps(plain)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    return CodecError(f"{where} should be {_name(hint)} and is {shown}", REMEDY)


def _unique_keys(pairs: list[tuple[str, Json]]) -> Json:
    plain = dict(pairs)
    if len(plain) != len(pairs):
        raise ValueError("a key is given twice in one object")
    return plain
