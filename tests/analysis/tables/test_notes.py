"""Notes are short: what the reader must know; the rest is the explanation."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from daily import daily
from fleet_rows import NETS, PLACES, write_results
from growth_rows import OF_GROWTH, OF_READING, OF_SIDE_ROWS, rows_for
from language_rows import DECODERS, MACHINES, OF_TOKENS, write_language_results
from shared_tables import NAMES, SharedTables
from wording import has

from fleetrank.analysis.report.html_table import html_table
from fleetrank.analysis.report.shown import choose_shown
from fleetrank.analysis.stored.cell_values import cell_values
from fleetrank.analysis.stored.columns import ORIGINS
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.brief_notes import MAX_SENTENCES, sentences_in, split_notes
from fleetrank.analysis.tables.formats import EXPLAIN_HINT, render
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.tables import TableRequest, make_table

pytestmark = pytest.mark.slow

USUAL = [TableRequest(name=name) for name in NAMES if name not in OF_SIDE_ROWS]


FLEET = {"nets": NETS[:9], "repeats": 3, "n_samples": 5}
"""The fewest rows of which every table can be made, on three devices of two runtimes."""


@pytest.fixture(scope="module")
def frame(tmp_path_factory: pytest.TempPathFactory) -> pl.LazyFrame:
    folder = tmp_path_factory.mktemp("notes") / "results"
    rows = load_measurements(write_results(folder, places=PLACES[:5], **FLEET))
    return rows.with_columns(energy_mj=pl.col("latency_p50_ns") * 1e-6)


@pytest.fixture(scope="module")
def doubtful(tmp_path_factory: pytest.TempPathFactory) -> pl.LazyFrame:
    """Few repeats, simulated rows, unlike memory metrics, failures, and missing figures."""
    places = [replace(place, origin="simulated") for place in PLACES[:1]]
    folder = tmp_path_factory.mktemp("doubtful") / "results"
    results = write_results(folder, places=[*places, *PLACES[1:]], **FLEET)
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
    folder = tmp_path_factory.mktemp("text")
    results = write_language_results(folder, decoders=DECODERS[:8], machines=MACHINES[:3])
    return load_measurements(results)


def _tables(images: pl.LazyFrame, text: pl.LazyFrame, chosen: Selection) -> SharedTables:
    return SharedTables(images, text, chosen, workload="decode@512")


FEW = [one for one in USUAL if one.words in {"transfer", "latency", "history"}]
"""Those whose rows give the most notes, one of cells, and one with rows of its own."""


@pytest.mark.parametrize("requests", daily([FEW, USUAL], FEW), ids=["few", "usual"])
def test_doubtful_rows_show_three_sentences_and_explain_prints_the_rest(
    requests: Sequence[TableRequest],
    doubtful: pl.LazyFrame,
    text: pl.LazyFrame,
    subtests: pytest.Subtests,
) -> None:
    is_edge = pl.col("tier") == "edge"
    few = text.filter(pl.col("repeat") < 3)
    doubtful_text = few.with_columns(
        origin=pl.when(is_edge).then(pl.lit("simulated")).otherwise("origin")
    )
    tables = _tables(doubtful, doubtful_text, Selection(origins=ORIGINS))
    for request in requests:
        with subtests.test(request.words):
            table = tables.table(request)
            brief, everything = render(table, "table"), render(table, "table", is_explained=True)
            assert table.notes[0].startswith("SIMULATED DATA: ")
            said = table.for_people()
            shown = [note for note in said.notes if f"Note: {note}" in brief]
            assert 1 <= sentences_in(shown) <= MAX_SENTENCES
            assert said.notes[0] in shown
            assert sum(line.startswith("Note: ") for line in brief.splitlines()) == len(shown)
            assert all(f"Note: {note}" in everything for note in (*said.notes, *said.explanation))
            assert json.loads(render(table, "json"))["notes"] == list(table.notes)
            if request.table == "transfer":
                assert len(shown) < len(table.notes), "the rows give too few notes for this test"


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
    selection = Selection(model="a")
    assert has(make_table("trust/dropped", make_attempts(rows), selection).notes, "1", "simulated")


@pytest.mark.thorough
def test_tables_of_several_workloads_name_what_they_leave_out(
    frame: pl.LazyFrame, text: pl.LazyFrame, subtests: pytest.Subtests
) -> None:
    of_text = {*OF_READING, *OF_TOKENS}
    sources = {True: _left_out(text), False: _left_out(frame)}
    for name in sorted({*OF_GROWTH, *of_text}):
        with subtests.test(name):
            rows = rows_for(name, sources[name in of_text])
            chosen = Selection(workload="prefill@128" if name == "tokens" else None)
            # One table has both notes; the table of sustained runs lists attempts.
            is_limited = name != "scaling/sustained"
            limit = replace(chosen, max_memory_mib=100 if is_limited else None)
            notes = make_table(name, rows, limit).notes
            assert has(notes, "excluded: ", "a fan failed")
            assert not is_limited or has(notes, "limit", "100 MiB")


def _left_out(rows: pl.LazyFrame) -> pl.LazyFrame:
    """The rows, with one model excluded by hand and another above a limit of memory."""
    frame = rows.collect()
    first, *_, last = frame["model"].unique().sort()
    return frame.lazy().with_columns(
        excluded=pl.when(pl.col("model") == first).then(pl.lit("a fan failed")),
        peak_memory_bytes=pl.when(pl.col("model") == last).then(2**40).otherwise(2**20),
    )
