"""A result class is its table, and the texts about tables are data."""

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import polars as pl
import pytest

from fleetrank.analysis.tables import table
from fleetrank.analysis.tables.table import Table, explained, schema_of
from fleetrank.analysis.tables.tables import TABLES

TEXTS: Mapping[str, Mapping[str, str]] = tomllib.loads(
    Path(table.__file__).with_name("explanations.toml").read_text()
)


class Word(StrEnum):
    A = "a"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    rho: float | None = None
    n_pairs: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    word: Word
    figures: Inner
    value: float
    is_known: bool = True
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    word: str
    figures: Inner | None = None
    unused: Mapping[str, int] = field(default_factory=dict)

    @property
    def value(self) -> float:
        return 7.0


def test_the_columns_are_those_of_the_class_and_of_the_results_in_its_fields() -> None:
    assert dict(schema_of(Row)) == {
        "word": pl.String(),
        "rho": pl.Float64(),
        "n_pairs": pl.Int64(),
        "value": pl.Float64(),
        "is_known": pl.Boolean(),
        "flags": pl.List(pl.String()),
    }
    with pytest.raises(TypeError, match="column"):
        schema_of(Other)


def test_nan_and_infinity_become_null_and_a_row_of_another_class_lacks_columns() -> None:
    one = Row(word=Word.A, figures=Inner(rho=math.nan), value=-math.inf, flags=("x",))
    table = Table.of(Row, [one, Other(word="b")], title="t", without=("n_pairs",))
    assert table.frame.rows() == [
        ("a", None, None, True, ["x"]),
        ("b", None, 7.0, None, None),
    ]
    assert Table.of(Row, [], title="t").frame.schema == pl.Schema(schema_of(Row))


def test_a_text_is_of_a_part_and_its_names_are_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"shared": {"x": "one\n{seed}"}, "t": {"t": "a: {x}.\n\n{none}\n\nb {share}\n"}}
    monkeypatch.setattr("fleetrank.analysis.tables.table._texts", lambda: texts)
    assert explained("t", {"seed": 3, "share": 0.50, "none": ""}) == ("a: one 3.", "b 0.5")
    with pytest.raises(KeyError):
        explained("t")


def test_every_text_is_of_a_table_and_every_shared_one_is_used() -> None:
    everything = " ".join(text for part in TEXTS.values() for text in part.values())
    names = set(re.findall(r"\{(\w+)\}", everything))
    assert set(TEXTS) - set(TABLES) == {"shared", "unlike-batch", "compare", "summary"}
    assert set(TEXTS["shared"]) <= names
