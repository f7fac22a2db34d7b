"""`predict` as it is typed."""

import json
from pathlib import Path

import polars as pl
import pytest
from fleet_rows import write_results
from stored_part import write_part

import fleetrank
from fleetrank.orchestrator.cli.main import run

KEY = "pixel-7/onnx/cpu/eager/fp32/b1/t1/afree/{}"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("workspace")
    (root / "cluster.yaml").touch()
    write_results(root / "results", n_samples=5)
    part = next((root / "results" / "measurements").rglob("*.parquet"))
    is_hidden = (pl.col("device") == "pixel-7") & (pl.col("model") == "resnet50")
    pl.read_parquet(part).filter(~is_hidden).pipe(write_part, part)
    return root


def _rows(
    workspace: Path, capsys: pytest.CaptureFixture[str], *words: str
) -> list[dict[str, object]]:
    assert run(["predict", *words, "--json", "--workspace", str(workspace)]) == 0
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)["rows"]
    return found


def test_more_coverage_and_fewer_models_are_options(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--device", "pixel-7", "--runtime", "onnx", "--models", "resnet*", "--models", "d*")
    rows = _rows(workspace, capsys, *words, "--coverage", "0.99", "--quantity", "memory")
    assert {row["model"] for row in rows} == {"resnet18", "resnet50", "densenet121", "deit_tiny"}
    (one,) = (row for row in rows if row["kind"] == "predicted")
    assert one["low_mib"] is None
    assert "more model" in str(one["reason"])


def test_a_device_without_measurements_needs_a_configuration(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = _rows(workspace, capsys, "--device", "new", "--like", KEY)
    assert {row["kind"] for row in rows} == {"predicted"}
    assert run(["predict", "--device", "pixel-8", "--workspace", str(workspace)]) == 4
    assert "pixel-7" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["table", "json", "csv", "markdown", "latex"])
def test_every_format_marks_what_is_predicted(
    workspace: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    words = ["predict", "--device", "pixel-7", "--format", form, "--workspace", str(workspace)]
    assert run(words) == 0
    assert "predicted" in capsys.readouterr().out


def test_a_program_gets_the_same_figures(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = _rows(workspace, capsys, "--device", "pixel-7")
    table = fleetrank.predict(workspace / "results", "pixel-7")
    assert table.frame.to_dicts() == rows
    narrowed = fleetrank.predict(workspace / "results", "new", like=KEY, coverage=0.5)
    assert set(narrowed.frame["k"]) == {0}
