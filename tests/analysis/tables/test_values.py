"""One text for a value, wherever it is shown."""

import io
import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import polars as pl
import pytest
from fleet_rows import NETS, PLACES, write_results
from rich.console import Console

from fleetrank.analysis.report.html_table import html_of_rows, html_table
from fleetrank.analysis.report.shown import choose_shown
from fleetrank.analysis.stored.cell_values import cell_values
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.tables.formats import FORMATS, render
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.values import heading, number_text, value_text
from fleetrank.orchestrator.cli.listing import print_table
from fleetrank.orchestrator.cli.terminal import print_on_terminal

ROW: dict[str, object] = {
    "model": "net", "ms": 12.5, "energy_mj": None, "count": 7, "is_real": True, "flags": ["a", "b"],
    "none": [],
}  # fmt: skip
TEXTS = ["net", "12.50", "-", "7", "yes", "a, b", "-"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("values") / "r"
    return write_results(folder, nets=[NETS[0]], places=PLACES[:1], repeats=1)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"), (0.00123456, "0.001235"), (12.3456, "12.35"), (-0.5, "-0.5000"),
        (123456.0, "123456"), (12345678.9, "12345679"), (1e-7, "1e-07"), (1.5e20, "1.5e+20"),
        (float("nan"), "nan"), (5, "5"), (12345678901, "12345678901"), (None, "-"), (True, "yes"),
        (False, "no"), ([], "-"), ([1, None, "a"], "1, -, a"), ("a\nb", "a\\u000ab"),
        (datetime(2026, 11, 21, 8, 0, 59, 999, tzinfo=UTC), "2026-11-21 08:00:59 UTC"),
        (datetime(2026, 11, 21, 8, tzinfo=timezone(timedelta(hours=2))), "2026-11-21 06:00:00 UTC"),
    ],
)  # fmt: skip
def test_a_value_has_one_text(value: object, text: str) -> None:
    assert value_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(12345.6, "12,346"), (1234.5, "1,234"), (3.0, "3.000"), (0.00012, "0.0001200")],
)
def test_a_page_groups_thousands(value: float, text: str) -> None:
    assert number_text(value, is_grouped=True) == text
    assert value_text(int(3e9), is_grouped=True) == "3,000,000,000"


def test_headings_put_the_unit_last() -> None:
    assert heading("latency_p50_ms") == "latency p50, ms"
    assert heading("peak_memory_mib") == "peak memory, MiB"
    assert heading("platform_key") == "platform"
    assert heading("n_repeats") == "repeats"
    assert heading("started_utc") == "started, UTC"


@pytest.mark.parametrize("form", FORMATS)
def test_people_count_repeats_and_attempts_from_1(form: str) -> None:
    frame = pl.DataFrame({"model": ["net"], "repeat": [6], "attempt": [2], "n_repeats": [7]})
    numbers = re.findall(r"\d+", render(Table(title="t", frame=frame), form))
    assert numbers == (["6", "2", "7"] if form in {"json", "csv"} else ["7", "3", "7"])


def test_pages_and_terminals_count_repeats_from_1(results: Path) -> None:
    table = Table(title="t", frame=pl.DataFrame({"model": ["a", "b"], "repeat": [0, 6]}))
    page = choose_shown(cell_values(load_measurements(results)))
    assert [row.cells[1].text for row in html_table("t", table, page).rows] == ["1", "7"]
    console = Console(file=io.StringIO(), width=200)
    print_on_terminal(table, console)
    assert isinstance(console.file, io.StringIO)
    assert re.findall(r"\d+", console.file.getvalue()) == ["1", "7"]


def test_every_writer_writes_the_same_texts(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pl.DataFrame([ROW], schema_overrides={"energy_mj": pl.Float64})
    table = Table(title="t", frame=pl.concat([frame, frame]))
    assert render(table, "markdown").splitlines()[4] == f"| {' | '.join(TEXTS)} |"
    assert f"{' & '.join(TEXTS)} \\\\" in render(table, "latex", is_cut=True)
    assert render(table, "table").splitlines()[4].split("  ")[0] == "net"
    print_table([ROW], as_json=False)
    assert capsys.readouterr().out.splitlines()[1].split() == " ".join(TEXTS).split()
    console = Console(file=io.StringIO(), width=200)
    print_on_terminal(Table(title="t", frame=frame), console)
    assert isinstance(console.file, io.StringIO)
    assert " ".join(TEXTS).split() in [
        line.split() for line in console.file.getvalue().splitlines()
    ]
    assert [cell.text for cell in html_of_rows("t", "t", [ROW]).rows[0].cells] == TEXTS
    shown_texts = [text for text in TEXTS if text != "-"]
    page = choose_shown(cell_values(load_measurements(results)))
    known = frame.drop("energy_mj", "none", "model")
    cells = html_table("t", Table(title="t", frame=known), page).rows[0].cells
    assert [cell.text for cell in cells] == shown_texts[1:]
