"""Names of the standard library that an older Python lacks, for the measuring code on a board.

`code.older_form` makes modules import them from here. On a new Python they are the originals. The
module is written for Python 3.9 as it is. Nothing of it runs while a model is timed.
"""

import dataclasses
import datetime as dt
import enum
import hashlib
import itertools
import re
import sys
import types
import typing
from collections.abc import Iterable, Iterator
from typing import Any, AnyStr, Callable, Optional, TypeVar  # noqa: UP035 - of 3.9 with parameters

IS_3_10 = sys.version_info >= (3, 10)
IS_3_11 = sys.version_info >= (3, 11)
_POSSESSIVE = re.compile(r"(?<!\\)([*+?}])\+")

UTC = dt.timezone.utc  # noqa: UP017
NoneType = type(None)
T = TypeVar("T")


def without_possessive(pattern: "AnyStr") -> "AnyStr":
    """A pattern that an older `re` reads, without possessive quantifiers.

    Those of our patterns only bound the time of a search, so it matches the same text.
    """
    if isinstance(pattern, bytes):
        return without_possessive(pattern.decode("latin-1")).encode("latin-1")
    return _POSSESSIVE.sub(r"\1", pattern)


def compile_pattern(pattern: "AnyStr", flags: int = 0) -> "re.Pattern[AnyStr]":
    """`re.compile`; possessive quantifiers are new in Python 3.11."""
    return re.compile(pattern if IS_3_11 else without_possessive(pattern), flags)


def file_digest(file: Any, name: str) -> Any:
    """`hashlib.file_digest`, new in Python 3.11."""
    if IS_3_11:
        return hashlib.file_digest(file, name)
    found = hashlib.new(name)
    for chunk in iter(lambda: file.read(1 << 20), b""):
        found.update(chunk)
    return found


def strict_zip(*columns: Iterable[Any], strict: bool) -> Iterator[Any]:
    """`zip` with `strict`, new in Python 3.10.

    Raises:
        ValueError: `strict`, and the lengths differ.
    """
    rows = [list(column) for column in columns]
    if strict and len({len(row) for row in rows}) > 1:
        raise ValueError("the arguments of zip have different lengths")
    return zip(*rows)  # noqa: B905 - of 3.9


def older_pairwise(values: Iterable[T]) -> "Iterator[tuple[T, T]]":
    """`itertools.pairwise`, new in Python 3.10."""
    first, second = itertools.tee(values)
    next(second, None)
    return zip(first, second)  # noqa: B905


def older_dataclass(
    cls: Optional[type] = None,  # noqa: UP045
    *,
    slots: bool = False,
    kw_only: bool = False,
    **options: Any,
) -> Any:
    """`dataclasses.dataclass` with `slots` and `kw_only`, which are new in Python 3.10.

    Slots only save memory. Fields by keyword have no order, so those without a default come first,
    as the older version demands.
    """
    del slots

    def make(made: type) -> type:
        hints = vars(made).get("__annotations__", {})
        if kw_only and hints:
            ordered = sorted(hints, key=lambda name: name in made.__dict__)
            made.__annotations__ = {name: hints[name] for name in ordered}
        return dataclasses.dataclass(**options)(made)

    return make if cls is None else make(cls)


class OlderStrEnum(str, enum.Enum):  # noqa: UP042 - this is its replacement
    """`enum.StrEnum`, new in Python 3.11: text and format are the value."""

    __str__ = str.__str__
    __format__ = str.__format__  # type: ignore[assignment]


class _NoUnion:
    """In place of `types.UnionType`, which no value has in Python 3.9."""


def _named(module: Any, name: str, older: Any) -> Any:
    return getattr(module, name, older)


StrEnum = _named(enum, "StrEnum", OlderStrEnum)
UnionType = _named(types, "UnionType", _NoUnion)
Self = _named(typing, "Self", TypeVar("Self"))
pairwise: Callable[..., Any] = _named(itertools, "pairwise", older_pairwise)
dataclass = _named(dataclasses, "dataclass" if IS_3_10 else "", older_dataclass)
