"""`fleetrank ab` with real files and real processes."""

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import short_measuring
from tiny_onnx import save_tiny_onnx

pytestmark = pytest.mark.slow


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", short_measuring.PROGRAM, *words]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    import onnx

    assert run(tmp_path, "init", ".").returncode == 0
    model = onnx.load(save_tiny_onnx(tmp_path / "a.onnx"))
    model.doc_string = "the same graph under another name"
    onnx.save(model, tmp_path / "b.onnx")
    return tmp_path


def test_two_files_take_turns_and_are_a_sweep_afterwards(folder: Path) -> None:
    words = ("ab", "a.onnx", "b.onnx", "--rounds", "3", "--margin", "900%", "--inline")
    done = run(folder, *words, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["rounds"], found["verdict"], found["margin"]) == (3, "same", 9.0)
    assert found["ratio_low"] < found["ratio"] < found["ratio_high"]
    rows = pl.read_parquet(folder / "results/measurements/**/*.parquet")
    assert rows.height == 6
    assert set(rows["design"]) == {"rounds"}
    assert rows.group_by("round_id").len()["len"].to_list() == [2, 2, 2]
    listed = json.loads(run(folder, "results", "list", "--json").stdout)
    assert found["sweep_id"] in json.dumps(listed)
    again = run(folder, "sweep", "resume", found["sweep_id"], "--inline")
    assert "0 left" in again.stdout + again.stderr


def test_one_model_cannot_be_compared_with_itself(folder: Path) -> None:
    done = run(folder, "ab", "a.onnx", "a.onnx", "--inline")
    assert done.returncode == 2
    assert "same model" in done.stderr


def test_a_file_that_cannot_run_is_reported_and_the_exit_code_says_so(folder: Path) -> None:
    (folder / "c.onnx").write_bytes(b"no model")
    done = run(folder, "ab", "a.onnx", "c.onnx", "--rounds", "2", "--inline")
    assert done.returncode in {2, 3, 4}
    assert "c" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_plan_of_a_sweep_with_rounds_names_the_devices_that_take_turns(folder: Path) -> None:
    (folder / "cards").mkdir(exist_ok=True)
    (folder / "cards/tiny.toml").write_text('source = "file"\nentry = "../a.onnx"\n')
    (folder / "sweeps/turns.yaml").write_text(
        "name: turns\nmodels: tiny\nruntimes: onnx\nrounds: {cells: 5}\n"
    )
    done = run(folder, "sweep", "plan", "turns")
    assert done.returncode == 0, done.stderr
    assert "up to 5 cells take turns on cpu-" in done.stdout
