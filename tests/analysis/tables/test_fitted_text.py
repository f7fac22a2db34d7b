"""Columns of text fit a width, and what is missing is named."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.analysis.tables.formats import fitted, render
from fleetrank.analysis.tables.table import Table


def test_columns_that_fit_are_kept_as_they_are() -> None:
    columns = {"a": ["x" * 90], "b": ["y" * 108]}
    found = fitted(columns, 200)
    assert found.columns == columns
    assert not found.notes("use csv")
    assert fitted(columns, 199).is_cut


def test_a_long_text_is_shortened_before_a_column_is_hidden() -> None:
    found = fitted({"model": ["m"], "reason": ["w" * 300], "n": ["12"]}, 200)
    assert list(found.columns) == ["model", "reason", "n"]
    assert found.columns["reason"][0].endswith("...")
    assert found.notes("use csv") == ["Texts that end in ... are shortened.", "use csv"]


def test_sentences_that_cannot_fit_are_hidden_before_figures() -> None:
    columns = {"goal": ["g" * 90], "advice": ["a" * 110], "answer": ["b" * 280], "value": ["0.93"]}
    found = fitted(columns, 200)
    assert list(found.columns) == ["goal", "answer", "value"]
    assert found.hidden == ("advice",)
    assert found.columns["value"] == ["0.93"]
    assert "value" in fitted(columns, 80).columns, "figures go last"


def test_the_last_columns_are_hidden_and_named() -> None:
    found = fitted({f"c{n}": ["1" * 20] for n in range(12)}, 100)
    assert list(found.columns) == ["c0", "c1", "c2", "c3"]
    assert found.hidden == tuple(f"c{n}" for n in range(4, 12))


def test_a_column_that_says_what_a_row_is_about_is_never_hidden_or_shortened() -> None:
    places = [f"{name}/{'x' * 120}" for name in ("cpu-1", "cpu-2")]
    columns = {
        "level": ["pair"] * 2, "source": places, "target": places[::-1],
        **{f"figure_{n}": ["0.9876"] * 2 for n in range(20)}, "reason": ["w" * 150] * 2,
    }  # fmt: skip
    found = fitted(columns, 200)
    assert found.columns["source"] == places
    assert found.columns["target"] == places[::-1]
    assert "figure_0" in found.columns, "wide names leave room for a figure"
    assert "reason" in found.hidden


def test_a_platform_behind_the_figures_is_kept() -> None:
    keys = [f"cpu-{n}/{'x' * 120}" for n in range(2)]
    columns = {"model": ["m"] * 2, "latency_ms": ["1.127"] * 2, "n": ["w" * 90] * 2}
    assert fitted({**columns, "platform_key": keys}, 200).columns["platform_key"] == keys


_cells = st.lists(st.text(alphabet="ab", max_size=150), min_size=2, max_size=2)


@pytest.mark.slow
@given(columns=st.dictionaries(st.text("xyz", min_size=1, max_size=9), _cells, min_size=1))
def test_no_line_of_text_is_wider_and_no_column_is_lost_in_silence(columns) -> None:
    frame = pl.DataFrame(columns)
    table = Table(title="T", frame=frame, notes=("a long note " * 40,))
    text = render(table, "table", width=200)
    assert max(map(len, text.splitlines())) <= 200
    for name in columns:
        assert name in text


@pytest.mark.parametrize("form", ["json", "csv", "markdown", "latex"])
def test_a_width_changes_text_only(form: str) -> None:
    table = Table(title="T", frame=pl.DataFrame({"a": ["x" * 300]}), notes=("n " * 200,))
    assert render(table, form, width=200) == render(table, form)
