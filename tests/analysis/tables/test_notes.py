"""Notes are short: what the reader must know; the rest is the explanation."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import polars as pl
import pytest
from fleet_rows import PLACES, write_results
from growth_rows import OF_GROWTH, OF_READING, OF_SIDE_ROWS, rows_for
from language_rows import OF_TOKENS, write_language_results
from wording import has

from fleetrank.analysis.report.html_table import html_table
from fleetrank.analysis.report.shown import choose_shown
from fleetrank.analysis.stored.cells_table import cell_values
from fleetrank.analysis.stored.columns import ORIGINS
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.brief_notes import MAX_SENTENCES, sentences_in, split_notes
from fleetrank.analysis.tables.formats import EXPLAIN_HINT, render
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.table_request import TableRequest
from fleetrank.analysis.tables.tables import TABLES, make_table

pytestmark = pytest.mark.slow

OF_STEPS = Selection(workload="decode@512")
SELF_EVIDENT = "quality --list dropped"
"""Its columns are those of the stored rows, and its notes are facts."""
EVERY = [
    TableRequest(table=name, settings=tuple(zip(names, words, strict=True)))
    for name, spec in TABLES.items()
    if name not in OF_SIDE_ROWS
    for names in [[one.name for one in spec.settings if one.default]]
    for words in product(*(one.words for one in spec.settings if one.default))
]
"""Each table of measurements with each word that changes what its rows are."""


@pytest.fixture(scope="module")
def frame(tmp_path_factory: pytest.TempPathFactory) -> pl.LazyFrame:
    rows = load_measurements(write_results(tmp_path_factory.mktemp("notes") / "results"))
    return rows.with_columns(energy_mj=pl.col("latency_p50_ns") * 1e-6)


@pytest.fixture(scope="module")
def doubtful(tmp_path_factory: pytest.TempPathFactory) -> pl.LazyFrame:
    """Few repeats, simulated rows, unlike memory metrics, failures, and missing figures."""
    places = [replace(place, origin="simulated") for place in PLACES[:1]]
    folder = tmp_path_factory.mktemp("doubtful") / "results"
    results = write_results(folder, places=[*places, *PLACES[1:]], repeats=3)
    is_edge = pl.col("tier") == "edge"
    is_failed = (pl.col("model") == "resnet18") & (pl.col("device") == "pixel-7")
    return load_measurements(results, origins=ORIGINS).with_columns(
        energy_mj=pl.col("latency_p50_ns") * 1e-6,
        status=pl.when(is_failed).then(pl.lit("failed")).otherwise("status"),
        memory_metric=pl.when(is_edge).then(pl.lit("x")).otherwise("memory_metric"),
        flops=pl.when(pl.col("model") != "resnet50").then("flops"),
        accuracy_top1=pl.when(pl.col("model") != "vgg16").then("accuracy_top1"),
    )


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> pl.LazyFrame:
    return load_measurements(write_language_results(tmp_path_factory.mktemp("text")))


@pytest.fixture(scope="module")
def doubtful_text(text: pl.LazyFrame) -> pl.LazyFrame:
    few = text.filter(pl.col("repeat") < 3)
    return few.with_columns(
        origin=pl.when(pl.col("tier") == "edge").then(pl.lit("simulated")).otherwise("origin")
    )


@pytest.mark.parametrize("request_", EVERY, ids=lambda one: one.words)
def test_notes_have_at_most_three_sentences(
    request_: TableRequest, frame: pl.LazyFrame, text: pl.LazyFrame
) -> None:
    chosen, rows = (OF_STEPS, text) if request_.table in OF_TOKENS else (Selection(), frame)
    rows = rows_for(request_.table, rows)
    table = make_table(request_.table, rows, request_.selection(chosen))
    assert 1 <= sentences_in(table.notes) <= MAX_SENTENCES, table.notes
    assert bool(table.explanation) == (request_.words != SELF_EVIDENT)


@pytest.mark.parametrize("request_", EVERY, ids=lambda one: one.words)
def test_doubtful_rows_show_three_sentences_and_explain_prints_the_rest(
    request_: TableRequest, doubtful: pl.LazyFrame, doubtful_text: pl.LazyFrame
) -> None:
    of_tokens = request_.table in OF_TOKENS
    chosen, rows = (OF_STEPS, doubtful_text) if of_tokens else (Selection(), doubtful)
    rows = rows_for(request_.table, rows)
    selection = request_.selection(replace(chosen, origins=ORIGINS))
    table = make_table(request_.table, rows, selection)
    brief, everything = render(table, "table"), render(table, "table", is_explained=True)
    shown = [note for note in table.notes if f"Note: {note}" in brief]
    assert 1 <= sentences_in(shown) <= MAX_SENTENCES
    assert table.notes[0] in shown
    assert sum(line.startswith("Note: ") for line in brief.splitlines()) == len(shown)
    assert all(f"Note: {note}" in everything for note in (*table.notes, *table.explanation))
    assert json.loads(render(table, "json"))["notes"] == list(table.notes)
    if request_.table == "transfer":
        assert len(shown) < len(table.notes), "the rows give too few notes for this test"


@pytest.mark.parametrize("request_", EVERY, ids=lambda one: one.words)
def test_simulated_rows_come_first_in_the_notes_of_every_table(
    request_: TableRequest, frame: pl.LazyFrame, text: pl.LazyFrame
) -> None:
    chosen, rows = (OF_STEPS, text) if request_.table in OF_TOKENS else (Selection(), frame)
    rows = rows_for(request_.table, rows).with_columns(origin=pl.lit("simulated"))
    table = make_table(request_.table, rows, request_.selection(replace(chosen, origins=ORIGINS)))
    assert has(table.notes[0], "SIMULATED DATA: all")


@pytest.mark.parametrize(
    ("notes", "shown"),
    [
        ((), ()),
        (("a. b. c. d.",), ("a. b. c. d.",)),
        (("a.", "b.", "c."), ("a.", "b.", "c.")),
        (("a.", "b.", "c.", "d."), ("a.", "b.", "d.")),
        (("a.", "b. b.", "c.", "d."), ("a.", "c.", "d.")),
        (("a 0.5 b.", "b. b.", "c."), ("a 0.5 b.", "c.")),
    ],
)
def test_the_first_and_the_last_note_stay(notes: tuple[str, ...], shown: tuple[str, ...]) -> None:
    brief, others = split_notes(notes)
    assert brief == shown
    assert sorted((*brief, *others)) == sorted(notes)


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


def test_only_selected_attempts_of_another_origin_are_counted(make_attempts) -> None:
    real = [{"model": name, "latency_p50_ns": 1e6} for name in ("a", "b")]
    rows = [*real, *(row | {"device": "sim", "origin": "simulated"} for row in real)]
    selection = Selection(model="a", settings=(("list", "dropped"),))
    assert has(make_table("quality", make_attempts(rows), selection).notes, "1", "simulated")


@pytest.mark.parametrize(
    "name", [*OF_GROWTH, *OF_READING, "summary", "tokens", "end-to-end", "phases"]
)
def test_tables_of_several_workloads_name_what_they_leave_out(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    is_text = name in {*OF_READING, "tokens", "end-to-end", "phases"}
    write = write_language_results if is_text else write_results
    frame = load_measurements(write(tmp_path_factory.mktemp("rows") / "results"))
    first, *_, last = frame.collect()["model"].unique().sort()
    reason = pl.when(pl.col("model") == first).then(pl.lit("a fan failed"))
    memory = pl.when(pl.col("model") == last).then(2**40).otherwise(2**20)
    rows = rows_for(name, frame.with_columns(excluded=reason, peak_memory_bytes=memory))
    chosen = Selection(workload="prefill@128" if name == "tokens" else None)
    assert has(make_table(name, rows, chosen).notes, "excluded by hand", "a fan failed")
    if name != "sustained":  # it lists attempts
        limited = make_table(name, rows, replace(chosen, max_memory_mib=100))
        assert has(limited.notes, "limit", "100 MiB")
