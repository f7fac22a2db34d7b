"""Counts the values of a YAML text from its events, before anything is built from them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.plain_data import (
    MAX_DIGITS,
    DataLimits,
    too_deep,
    too_many_digits,
    too_many_values,
)
from fleetrank.foundation.visible_text import shortened

_BEGINS = {"SequenceStartEvent", "MappingStartEvent"}
_ENDS = {"SequenceEndEvent", "MappingEndEvent"}
_IN_NUMBERS = frozenset("_:+-. \t\n")
"""Besides digits: YAML 1.1 reads `1:30` as 90; its time grows with the square of the parts."""


class Event(Protocol):
    """An event of `yaml.parse`; most kinds have further attributes."""

    @property
    def start_mark(self) -> object:
        """Its position in the text."""


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not been read.

    Attributes:
        n_before: values counted before it.
        height: how deep its content is nested, itself included.
        key: the last key in it; empty in a list.
    """

    anchor: str | None
    n_before: int
    is_mapping: bool
    height: int = 1
    n_inside: int = 0
    key: str = ""


def check_events(events: Iterable[Event], where: str, limits: DataLimits) -> None:
    """Reads events until a limit is exceeded or the text ends.

    An alias counts with its whole content, which is never expanded here.

    Raises:
        BadFileError: too many values, nested too deep, a number of too many digits, or a value that
            contains itself; names the file and the place.
    """
    count = _Count(where, limits)
    for event in events:
        kind = type(event).__name__
        anchor = getattr(event, "anchor", None)
        if kind in _BEGINS:
            count.begin(anchor, is_mapping=kind == "MappingStartEvent")
        elif kind in _ENDS:
            count.end()
        elif kind == "AliasEvent":
            count.alias(str(anchor))
        elif kind == "ScalarEvent":
            count.scalar(anchor, str(getattr(event, "value", "")))


class _Count:
    def __init__(self, where: str, limits: DataLimits) -> None:
        self._where = where
        self._limits = limits
        self._n_values = 0
        self._open: list[_Open] = []
        self._named: dict[str, tuple[int, int]] = {}
        """Anchor to the number of values and the depth of its content."""

    def begin(self, anchor: str | None, *, is_mapping: bool) -> None:
        self._named.pop(anchor or "", None)
        self._add("", n_values=1, height=1)
        self._open.append(_Open(anchor, self._n_values - 1, is_mapping))

    def end(self) -> None:
        ended = self._open.pop()
        if self._open:
            self._open[-1].height = max(self._open[-1].height, ended.height + 1)
        if ended.anchor is not None:
            self._named[ended.anchor] = (self._n_values - ended.n_before, ended.height)

    def scalar(self, anchor: str | None, text: str) -> None:
        self._add(text, n_values=1, height=0)
        if len(text) > MAX_DIGITS and all(c.isdigit() or c in _IN_NUMBERS for c in text):
            keys = ".".join(inside.key for inside in self._open if inside.key)
            raise too_many_digits(f"{self._where}: key '{shortened(keys)}'")
        if anchor is not None:
            self._named[anchor] = (1, 0)

    def alias(self, anchor: str) -> None:
        if any(inside.anchor == anchor for inside in self._open) and anchor not in self._named:
            raise BadFileError(
                f"{self._where}: the alias *{shortened(anchor)} is inside the value that it names",
                "write the value out",
            )
        # The parser rejects an alias without an anchor.
        n_values, height = self._named.get(anchor, (1, 0))
        self._add("", n_values=n_values, height=height)

    def _add(self, text: str, *, n_values: int, height: int) -> None:
        self._n_values += n_values
        if self._n_values > self._limits.values:
            raise too_many_values(self._where, self._limits)
        if len(self._open) + height > self._limits.depth:
            raise too_deep(self._where, self._limits)
        if not self._open:
            return
        inside = self._open[-1]
        inside.height = max(inside.height, height + 1)
        if inside.is_mapping and inside.n_inside % 2 == 0:
            inside.key = shortened(text)
        inside.n_inside += 1
