"""`report compare`, `report build --tables` and Parquet as they are typed."""

import inspect
import io
import json
import os
import pty
from pathlib import Path

import polars as pl
import pytest
from fleet_rows import NETS, PLACES, Place, write_results
from stored_part import write_part
from wording import has

from fleetrank.analysis.comparison.verdict import DEFAULT_ALPHA, DEFAULT_MARGIN
from fleetrank.orchestrator.cli import report_compare
from fleetrank.orchestrator.cli.main import run

BASE, SLOW, FEW = ("s-20260101T000000-aa", "s-20260102T000000-bb", "s-20260103T000000-cc")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("workspace")
    (root / "cluster.yaml").touch()
    slow = [Place(device=p.device, tier=p.tier, runtime=p.runtime, gflops=p.gflops / 1.5)
            for p in PLACES[:1]]  # fmt: skip
    for sweep, places, repeats in ((BASE, PLACES[:1], 6), (SLOW, slow, 6), (FEW, PLACES[:1], 2)):
        options = {"repeats": repeats, "n_samples": 3, "sweep": sweep}
        write_results(root / "results", nets=NETS[:4], places=places, **options)
    return root


def _run(workspace: Path, *words: str) -> int:
    return run([*words, "--workspace", str(workspace)])


def test_a_slower_sweep_is_exit_code_5_with_the_rows(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(workspace, "report", "compare", BASE, SLOW) == 5
    text = capsys.readouterr().out
    assert f"{SLOW} against {BASE}" in text
    assert text.strip().endswith("4 cells: 4 slower")


def test_a_faster_one_and_a_loose_threshold_are_exit_code_0(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(workspace, "report", "compare", SLOW, BASE, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["cells"]["faster"] == 4
    assert {row["verdict"] for row in answer["rows"]} == {"faster"}
    assert _run(workspace, "report", "compare", BASE, SLOW, "--threshold", "2") == 0


def test_too_few_repeats_are_exit_code_4_with_the_table(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The newest sweep when only one is named.
    assert _run(workspace, "report", "compare", BASE) == 4
    answer = capsys.readouterr()
    assert has(answer.out, "2 processes", "5")
    assert "no cell" in answer.err


def test_a_margin_is_a_percentage_or_a_fraction(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = []
    for words in (("--margin", "30%"), ("--margin", "0.3"), ("--threshold", "0.3")):
        assert _run(workspace, "report", "compare", BASE, SLOW, *words, "--json") == 5
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0] == answers[1] == answers[2]
    assert answers[0]["margin"] == answers[0]["threshold"] == 0.3
    assert answers[0]["detectable_ratio"] > 1
    assert _run(workspace, "report", "compare", BASE, SLOW, "--margin", "wide") == 2
    assert "wide" in capsys.readouterr().err


def test_what_an_option_requires_and_is_not_shown_is_exit_code_4(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("report", "compare", SLOW, BASE, "--margin", "20%")
    assert _run(workspace, *words) == 0
    assert _run(workspace, *words, "--require-not-slower", "--require-power") == 0
    capsys.readouterr()
    assert _run(workspace, *words, "--require-same") == 4
    assert has(capsys.readouterr().err, "4", "cells", "same", "20")
    # A slower cell comes first.
    assert _run(workspace, "report", "compare", BASE, SLOW, "--require-power") == 5
    narrow = ("report", "compare", SLOW, BASE, "--margin", "0.1%", "--require-power")
    assert _run(workspace, *narrow) == 4
    assert has(capsys.readouterr().err, "4", "cells", "0.1")


def test_every_difference_is_printed_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cluster.yaml").touch()
    for sweep in (BASE, SLOW):
        options = {"repeats": 5, "n_samples": 3, "sweep": sweep}
        write_results(tmp_path / "results", nets=NETS[:1], places=PLACES[:1], **options)
    (part,) = (tmp_path / f"results/measurements/sweep_id={SLOW}").iterdir()
    names = ("runtime_version", "os", "governor", "python_version", "cpu_model")
    pl.read_parquet(part).with_columns(pl.lit("new").alias(n) for n in names).pipe(write_part, part)
    _run(tmp_path, "report", "compare", BASE, SLOW)
    text = capsys.readouterr().out
    assert [text.count(f": {name} was") for name in names] == [1] * len(names)
    assert has(text, "session")


def test_an_unknown_sweep_is_exit_code_4(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(workspace, "report", "compare", BASE, "nope") == 4
    assert SLOW in capsys.readouterr().err


def test_the_defaults_are_those_of_the_analysis() -> None:
    defaults = inspect.signature(report_compare.compare).parameters
    assert defaults["margin"].default == DEFAULT_MARGIN
    assert defaults["alpha"].default == DEFAULT_ALPHA


def test_export_lists_what_it_wrote_and_refuses_to_overwrite(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "tables"
    words = ("report", "build", "--tables", str(folder), "--to", "markdown")
    assert _run(workspace, *words, "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["file"] for row in rows if row["file"]} < {path.name for path in folder.iterdir()}
    (folder / "frm.md").write_text("mine")
    assert _run(workspace, *words) == 2
    assert "--force" in capsys.readouterr().err
    assert _run(workspace, *words, "--force") == 0


def test_parquet_goes_to_a_file(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sql = "SELECT model, NULL AS nothing, [1, 2] AS list FROM models ORDER BY model"
    out = tmp_path / "answer.parquet"
    assert _run(workspace, "query", sql, "--format", "parquet", "--out", str(out)) == 0
    frame = pl.read_parquet(out)
    assert frame.columns == ["model", "nothing", "list"]
    assert frame.height == 4
    assert _run(workspace, "query", sql, "--out", str(out)) == 2
    assert "--format parquet" in capsys.readouterr().err


def test_parquet_goes_through_a_pipe_and_not_to_a_terminal(
    workspace: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ("query", "SELECT 1 AS one", "--format", "parquet")
    assert _run(workspace, *words) == 0
    assert pl.read_parquet(io.BytesIO(capfdbinary.readouterr().out))["one"].to_list() == [1]
    controller, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as screen, os.fdopen(controller):
        monkeypatch.setattr("sys.stdout", screen)
        assert _run(workspace, *words) == 2
    assert b"--out FILE" in capfdbinary.readouterr().err
