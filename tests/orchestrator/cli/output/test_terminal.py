"""Tables on a terminal fit it, and lose nothing without saying so."""

import io
import sys

import polars as pl
import pytest
from rich.console import Console

from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.text_columns import column_texts
from fleetrank.orchestrator.cli.sweep_display import shown_cells
from fleetrank.orchestrator.cli.terminal import print_on_terminal, print_rows
from fleetrank.orchestrator.cli.visible_streams import VisibleStream, make_streams_visible

FRAME = pl.DataFrame(
    {
        "model": ["mobilenet_v3_large", "resnet18"],
        "platform_key": [f"cpu-6b103d/onnx/cpu/eager/fp32/b1/t{n}/a0/{{}}" for n in (1, 2)],
        "latency_p50_ms": [2.857, 14.91],
        "latency_low_ms": pl.Series([None, None], dtype=pl.Float64),
        "n_repeats": [3, 3],
        "flags": [["drift", "outliers", "preempted", "repeats_disagree"], ["drift"]],
    }
)


def shown(width: int, frame: pl.DataFrame = FRAME, notes: tuple[str, ...] = ()) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    print_on_terminal(Table(title="Latency", frame=frame, notes=notes), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_what_all_rows_share_is_said_once() -> None:
    lines = shown(80)
    assert lines[0] == "Latency (cpu-6b103d, onnx, fp32, CPUs 0)"
    assert "In these rows: repeats: 3" in lines
    (row,) = [line.split() for line in lines if line.startswith("resnet18")]
    assert row == ["resnet18", "2", "threads", "14.91", "drift"]


@pytest.mark.parametrize("width", [200, 100, 60, 45, 30, 20])
def test_no_line_is_wider_than_the_terminal_and_no_number_is_broken(width: int) -> None:
    lines = shown(width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert ("14.91" in text) or "Hidden columns:" in text
    for name in ("p50", "flags"):
        assert name in text, "shown, or named as hidden"


def test_a_column_without_room_is_named() -> None:
    text = " ".join(shown(30))
    assert "Hidden columns:" in text
    assert "flags" in text.partition("Hidden columns:")[2]


@pytest.mark.parametrize("width", [100, 60, 30])
def test_what_a_row_is_about_is_shown_on_any_terminal(width: int) -> None:
    places = [f"pixel-{n}-with-a-long-name" for n in range(3)]
    frame = pl.DataFrame(
        {"measure": ["latency"] * 3, "rho": [0.5, 0.6, 0.7], "source": places,
         "target": places[::-1], "n_pairs": [11111, 22222, 33333]}
    )  # fmt: skip
    lines = shown(width, frame)
    assert max(map(len, lines)) <= width
    assert "target" not in " ".join(lines).partition("Hidden columns:")[2]
    assert "".join(lines).count("pixel-0") == 2


def test_reasons_of_a_hidden_column_are_printed_once_each() -> None:
    why = "no interval: 3 repeats of prefill@512, and 5 are needed"
    frame = pl.concat([FRAME, FRAME]).with_columns(reason=pl.Series([why, why, None, "no pair"]))
    lines = " ".join(" ".join(shown(50, frame)).split())
    assert f"reason of 2 rows: {why}." in lines
    assert "1 row: no pair." in lines
    assert "reason of" not in " ".join(shown(300, frame))


def test_a_row_of_dashes_is_counted_and_not_printed() -> None:
    frame = pl.DataFrame(
        {"model": ["a", "b", "c"], "here": [1.5, None, None], "there": [2.5, 3.5, None]}
    )
    lines = shown(12, frame)
    assert [line.split()[0] for line in lines if line[:2] in {"a ", "b ", "c "}] == ["a"]
    assert "2 rows with figures" in " ".join(" ".join(lines).split())
    assert not any("rows with" in line for line in shown(80, frame)), "nothing is hidden"


def test_hidden_columns_name_the_option_that_prints_them() -> None:
    console = Console(file=io.StringIO(), width=30, force_terminal=True, color_system=None)
    print_on_terminal(Table(title="Latency", frame=FRAME), console, full="--json")
    assert isinstance(console.file, io.StringIO)
    assert "--json" in console.file.getvalue().partition("Hidden columns:")[2]


def test_one_row_is_shown_whole() -> None:
    assert any("cpu-6b103d, onnx, fp32, 1 thread" in line for line in shown(200, FRAME[:1]))


def test_names_are_text_and_drive_no_terminal() -> None:
    frame = pl.DataFrame({"model": ["[red]x[/red]\x1b[2J", "b"], "n": [1, 2]})
    text = "\n".join(shown(60, frame, ("[bold]note\x1b[2J",)))
    assert "\x1b" not in text
    assert "[red]x[/red]" in text
    assert "[bold]note" in text


def test_an_empty_table_says_its_title_and_notes() -> None:
    lines = shown(60, FRAME.clear(), ("nothing was measured",))
    assert lines[0] == "Latency"
    assert lines[-1] == "Note: nothing was measured"


def test_a_moment_in_a_list_fits_its_column(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    rows = [
        {"sweep_id": f"study-20261122T16000{n}-b523", "started_utc": f"2026-11-22T16:00:0{n}+00:00",
         "finished_utc": "2026-11-22T18:30:00.123+02:00", "tags": ["nightly"], "bad_utc": f"x{n}"}
        for n in (1, 2)
    ]  # fmt: skip
    print_rows(rows, [])
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if line.startswith("study-20261122T160001")]
    assert "2026-11-22 16:00:01" in line
    assert "+00:00" not in line
    assert any("2026-11-22 16:30:00" in line for line in lines), "in UTC, of all rows"


def test_a_message_on_a_terminal_is_broken_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    file = io.BytesIO()
    with VisibleStream(io.TextIOWrapper(file, encoding="utf-8"), is_wrapped=True) as stream:
        print("  -> use a/very/long/path/of/a/file, or none", "short", sep="\n", file=stream)
        stream.flush()
        lines = file.getvalue().decode().splitlines()
    assert lines == ["  -> use", "  a/very/long/path/of/a/file,", "  or none", "short"]


def test_a_closed_output_takes_all_that_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    make_streams_visible()
    for stream in (sys.stdout, sys.stderr):
        print("x", file=stream)
        stream.close()


def test_a_correlation_that_rounds_to_zero_has_no_sign() -> None:
    assert column_texts(pl.DataFrame({"headroom": [-0.001, -0.01]}), "headroom") == [
        "0.00",
        "-0.01",
    ]


def test_cells_of_a_run_show_the_verdict_and_no_flags() -> None:
    names = (
        "model", "platform_key", "workload", "latency_ms", "latency_low_ms", "latency_high_ms",
        "tokens_per_s", "peak_memory_mib", "backend_nodes", "graph_nodes", "origin",
    )  # fmt: skip
    row = dict.fromkeys(names) | {"flags": ["drift"], "verdict": "noisy", "why": "two differ"}
    assert shown_cells([row | {"origin": "measured"}]) == [
        {"verdict": "noisy", "why": "two differ"}
    ]
