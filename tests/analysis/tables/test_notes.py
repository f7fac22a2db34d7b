"""Notes are short: what the reader must know; the rest is the explanation."""

import json
import re
from pathlib import Path

import polars as pl
import pytest
from fleet_rows import write_results

from fleetrank.analysis.report.html_table import html_table
from fleetrank.analysis.report.shown import choose_shown
from fleetrank.analysis.stored.cells_table import cell_values
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.formats import EXPLAIN_HINT, render
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.tables import TABLES, make_table

pytestmark = pytest.mark.slow

MAX_SENTENCES = 3
END = re.compile(r"[.!?](?=\s|$)")
SELF_EVIDENT = {"dropped"}
"""Its columns are those of the stored rows, and its notes are facts."""


@pytest.fixture(scope="module")
def frame(tmp_path_factory: pytest.TempPathFactory) -> pl.LazyFrame:
    return load_measurements(write_results(tmp_path_factory.mktemp("notes") / "results"))


@pytest.mark.parametrize("name", TABLES)
def test_notes_have_at_most_three_sentences(name: str, frame: pl.LazyFrame) -> None:
    table = make_table(name, frame, Selection())
    assert 1 <= len(END.findall(" ".join(table.notes))) <= MAX_SENTENCES, table.notes
    assert bool(table.explanation) == (name not in SELF_EVIDENT)


@pytest.fixture
def table() -> Table:
    return Table(
        title="t", frame=pl.DataFrame({"x": [1]}), notes=("A fact.",), explanation=("A meaning.",)
    )


@pytest.mark.parametrize("form", ["table", "markdown", "latex"])
def test_a_reader_asks_for_the_explanation(table: Table, form: str) -> None:
    short, long = render(table, form), render(table, form, is_explained=True)
    assert "A fact." in short
    assert "A meaning." not in short
    assert long.index("A fact.") < long.index("A meaning.")
    assert EXPLAIN_HINT not in long
    assert (EXPLAIN_HINT in short) == (form == "table")


def test_a_program_gets_notes_and_explanation_apart(table: Table) -> None:
    for is_explained in (False, True):
        content = json.loads(render(table, "json", is_explained=is_explained))
        assert (content["notes"], content["explanation"]) == (["A fact."], ["A meaning."])
        assert render(table, "csv", is_explained=is_explained) == "x\n1\n"


def test_a_page_folds_the_explanation(tmp_path: Path, table: Table) -> None:
    shown = choose_shown(cell_values(load_measurements(write_results(tmp_path / "r", repeats=1))))
    html = html_table("latency", table, shown)
    assert (html.notes, html.explanation) == (("A fact.",), ("A meaning.",))
