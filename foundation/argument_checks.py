"""Checks arguments that a program gives: wrong types and values become errors with a remedy."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from fleetrank.foundation.errors import FleetError

T = TypeVar("T")


class ArgumentError(FleetError):
    """An argument has the wrong type or is out of range; exit code 2 on the command line."""


def path_of(name: str, given: object) -> Path:
    """The path that a caller gave as text or as a path object.

    Raises:
        ArgumentError: it is neither, it is empty, or it contains a NUL.
    """
    if isinstance(given, str | os.PathLike):
        text = os.fspath(given)
        if isinstance(text, str) and text and "\0" not in text:
            return Path(text)
    raise _wrong(name, given, "a path as str or pathlib.Path")


def text_of(name: str, given: object) -> str:
    """The text that a caller gave.

    Raises:
        ArgumentError: it is not a text.
    """
    if isinstance(given, str):
        return given
    raise _wrong(name, given, "a text")


def texts_of(name: str, given: object) -> tuple[str, ...]:
    """The texts of a list or tuple, or of another collection that is not a text.

    Raises:
        ArgumentError: it is one text or no collection, or a member is not a text.
    """
    if isinstance(given, Iterable) and not isinstance(given, str | bytes):
        return tuple(text_of(f"a member of {name}", one) for one in given)
    raise _wrong(name, given, "a list of texts")


def pairs_of(name: str, given: object) -> None:
    """Checks a sequence of pairs, such as `(("quantity", "memory"),)`.

    Raises:
        ArgumentError: it is not a sequence, or a member is not a pair of a name and a value.
    """
    is_sequence = isinstance(given, Sequence) and not isinstance(given, str | bytes)
    for pair in given if is_sequence and isinstance(given, Sequence) else (None,):
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)):
            raise _wrong(name, given, "pairs of name and value, such as (('name', 'value'),)")


def number_of(name: str, given: object, *, above: float, most: float) -> float:
    """The number that a caller gave.

    Raises:
        ArgumentError: it is not a number, or not above `above` and at most `most`.
    """
    if isinstance(given, int | float) and not isinstance(given, bool) and above < given <= most:
        return float(given)
    raise _wrong(name, given, f"a number above {above:g} and at most {most:g}")


def count_given(name: str, given: object, *, least: int, most: int) -> int:
    """The whole number that a caller gave.

    Raises:
        ArgumentError: it is not a whole number from `least` to `most`.
    """
    if isinstance(given, int) and not isinstance(given, bool) and least <= given <= most:
        return given
    raise _wrong(name, given, f"a whole number from {least} to {most}")


def instance_of(name: str, given: object, kind: type[T]) -> T:
    """The argument, if it is of the class.

    Raises:
        ArgumentError: it is of another class.
    """
    if isinstance(given, kind):
        return given
    raise _wrong(name, given, f"a value of the class {kind.__name__}")


def _wrong(name: str, given: object, wanted: str) -> ArgumentError:
    shown = repr(given)
    short = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}..."
    return ArgumentError(f"{name} is {short} ({type(given).__name__})", f"give {wanted}")


_LONGEST = 100
"""Characters of a wrong value in a message."""
