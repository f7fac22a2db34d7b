"""The object at the centre of this package: a titled frame with notes for its reader.

A result class is its table: one field a column, in order. `Table.of` derives schema and frame.
"""

import re
import tomllib
import types
import typing
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from types import MappingProxyType

import polars as pl

from fleetrank.analysis.labels import Labels, keys_in, labels_of

_SHARED = "shared"
_NAME = re.compile(r"\{(\w+)\}")
_NOTHING: Mapping[str, object] = MappingProxyType({})


def explained(part: str, values: Mapping[str, object] = _NOTHING) -> tuple[str, ...]:
    """The paragraphs about a part of a table, in order; one that is empty is left out.

    Args:
        part: its name in the file, such as `strategies/crossover`.
        values: what stands for a `{name}`, beside the shared texts.
    """
    texts = _texts()
    known = texts[_SHARED] | {
        name: f"{one:g}" if isinstance(one, float) else str(one) for name, one in values.items()
    }
    table, _, inner = part.partition("/")
    paragraphs = texts[table][inner or table].split("\n\n")
    return tuple(text for one in paragraphs if (text := _filled(one, known)))


def parts_of(table: str) -> Mapping[str, tuple[str, ...]]:
    """What each part of a table is explained with; a value that the rows give is its name."""
    return {
        part: explained(f"{table}/{part}", _names_in(text))
        for part, text in _texts().get(table, {}).items()
    }


def _names_in(text: str) -> Mapping[str, str]:
    shared = _texts()[_SHARED]
    found: dict[str, str] = {}
    for name in _NAME.findall(text):
        found |= _names_in(shared[name]) if name in shared else {name: f"`{name}`"}
    return found


def _filled(paragraph: str, known: Mapping[str, str]) -> str:
    text = " ".join(paragraph.split())
    while _NAME.search(text):
        text = _NAME.sub(lambda found: " ".join(known[found[1]].split()), text)
    return text


@cache
def _texts() -> Mapping[str, dict[str, str]]:
    return tomllib.loads(Path(__file__).with_name("explanations.toml").read_text(encoding="utf-8"))


_OF_SHELL = ("command",)
"""Columns whose text is copied into a shell: it has full keys."""
_FROM_ZERO = ("repeat", "attempt")
"""Columns that count from 0 where they are stored, and in formats for programs."""
_TYPES: tuple[tuple[type, pl.DataType], ...] = (
    (str, pl.String()),
    (bool, pl.Boolean()),
    (int, pl.Int64()),
    (float, pl.Float64()),
    (datetime, pl.Datetime("us", "UTC")),
)
"""The first one that a field's type is, or is a subclass of; so words of an enumeration too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A titled frame with notes for its reader; an undefined figure is null, with its reason.

    Attributes:
        notes: what the reader must know of these rows, in at most three sentences.
        explanation: what the columns mean, how the figures are computed and when they mislead.
        devices: names of devices for people, as `labels.published_names` gives them.
        columns: those that people see unless they ask for others; empty for the first ones.
        brief: what people see in its place, unless they ask for columns, an order or everything;
            its notes are added, and its columns may be keys of platforms.

    Raises:
        ValueError: a figure is NaN or infinite; a table function without `of` must give null.
    """

    title: str
    frame: pl.DataFrame
    notes: tuple[str, ...] = ()
    explanation: tuple[str, ...] = ()
    devices: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    brief: "Table | None" = None

    def __post_init__(self) -> None:
        for column in self.frame.iter_columns():
            if column.dtype.is_float() and not column.is_finite().all():
                raise ValueError(f"column {column.name} of '{self.title}' holds NaN or infinity")

    @classmethod
    def of(
        cls,
        kind: type,
        results: Iterable[object],
        *,
        title: str,
        notes: tuple[str, ...] = (),
        explanation: tuple[str, ...] = (),
        without: Container[str] = (),
    ) -> "Table":
        """One row for each result, as `frame_of` makes it, without some columns."""
        frame = frame_of(kind, results)
        return cls(
            title=title,
            frame=frame.select(name for name in frame.columns if name not in without),
            notes=notes,
            explanation=explanation,
        )

    def for_people(self, labels: Labels | None = None) -> "Table":
        """The table with names of platforms in place of keys, and counted from 1.

        Args:
            labels: of a page that has more tables; `None` names what differs in this one.
        """
        texts = [
            name
            for name, dtype in self.frame.schema.items()
            if dtype == pl.String and name not in _OF_SHELL
        ]
        values = {name: self.frame[name].drop_nulls().unique().to_list() for name in texts}
        if labels is None:
            texts_in = sorted(one for some in values.values() for one in some)
            labels = labels_of(keys_in([*self.frame.columns, *texts_in]), self.devices)
        shown = [pl.col(name) + 1 for name in _FROM_ZERO if name in self.frame.columns]
        named = [
            pl.col(name).replace({one: labels.said(one) for one in some})
            for name, some in values.items()
        ]
        return replace(
            self,
            title=f"{self.title} ({labels.common})" if labels.common else self.title,
            frame=self.frame.with_columns(*shown, *named).rename(labels.said),
            notes=tuple(map(labels.said, self.notes)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRow:
    """The first columns of a table about one model on one platform."""

    model: str
    platform_key: str


@cache
def schema_of(kind: type) -> Mapping[str, pl.DataType]:
    """The columns of a result class; a field that is a result itself gives its own in its place.

    Raises:
        TypeError: a field has a type that no column has.
    """
    hints, found = typing.get_type_hints(kind), dict[str, pl.DataType]()
    for one in fields(kind):
        given = hints[one.name]
        if isinstance(given, types.UnionType):
            (given,) = (part for part in typing.get_args(given) if part is not types.NoneType)
        if is_dataclass(given) and isinstance(given, type):
            found.update(schema_of(given))
        else:
            found[one.name] = _column_type(given)
    return types.MappingProxyType(found)


def _column_type(given: object) -> pl.DataType:
    if typing.get_origin(given) is tuple:
        return pl.List(_column_type(typing.get_args(given)[0]))
    for kind, column in _TYPES:
        if isinstance(given, type) and issubclass(given, kind):
            return column
    raise TypeError(f"{given} is not the type of a column")


def frame_of(kind: type, results: Iterable[object]) -> pl.DataFrame:
    """The rows of some results, with the columns of `schema_of`; NaN and infinity become null.

    A column is an attribute of the result, or of a result in one of its fields. A result of another
    class is a row too: a column that it lacks is null.
    """
    schema = schema_of(kind)
    rows = [[*map(_values(one, schema).get, schema)] for one in results]
    frame = pl.DataFrame(rows, schema=dict(schema), orient="row")
    numbers = [name for name, column in schema.items() if column.is_float()]
    return frame.with_columns(pl.when(pl.col(numbers).is_finite()).then(pl.col(numbers)))


def _values(one: object, names: Iterable[str]) -> dict[str, object]:
    """By name, what a result has, or else the first of its parts that has it."""
    found = {name: getattr(one, name) for name in names if hasattr(one, name)}
    if lacking := [name for name in names if name not in found]:
        for each in fields(one):  # type: ignore[arg-type]
            if is_dataclass(part := getattr(one, each.name)):
                inner = _values(part, lacking)
                found |= {name: value for name, value in inner.items() if found.get(name) is None}
    return found
