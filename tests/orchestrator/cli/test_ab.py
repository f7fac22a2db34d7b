"""`fleetrank ab` and `run` with real files and real processes."""

import json
import os
import subprocess
from pathlib import Path

import onnx
import polars as pl
import pytest
from command_line import COMMAND
from onnx import TensorProto, helper
from tiny_onnx import save_tiny_onnx
from wording import has

pytestmark = pytest.mark.slow
SHORT = ("--max-time", "0.1")


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"XDG_DATA_HOME": str(folder / "data")}
    return subprocess.run(
        [COMMAND, *words], cwd=folder, capture_output=True, text=True, timeout=300, check=False,
        env=env,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    assert run(tmp_path, "init", ".").returncode == 0
    model = onnx.load(save_tiny_onnx(tmp_path / "a.onnx"))
    model.doc_string = "the same graph under another name"
    onnx.save(model, tmp_path / "b.onnx")
    return tmp_path


def test_two_files_take_turns_and_are_a_sweep_afterwards(folder: Path) -> None:
    words = ("ab", "a.onnx", "b.onnx", "--rounds", "3", "--margin", "900%", *SHORT)
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
    done = run(folder, "ab", "a.onnx", "c.onnx", "--rounds", "2", *SHORT)
    assert done.returncode in {2, 3, 4}
    assert "c" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_is_measured_without_a_workspace_and_what_nobody_chose_is_said(
    tmp_path: Path,
) -> None:
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", 4])
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, ["batch", 4, 2])
    table = helper.make_tensor("table", TensorProto.FLOAT, [9, 2], [0.5] * 18)
    node = helper.make_node("Gather", ["table", "ids"], ["out"])
    graph = helper.make_graph([node], "g", [ids], [out], [table])
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), tmp_path / "net.onnx")
    done = run(tmp_path, "run", "net.onnx", "--repeats", "1", *SHORT)
    assert done.returncode == 0, done.stderr
    place = tmp_path / "data" / "fleetrank"
    assert f"{place} is used" in done.stderr
    assert has(done.stderr, "batch", "measured at 1", "--axis batch=1,8")
    assert has(done.stderr, "ids", "0 or 1", "--input ids=ids:30522")
    # The commands that it names find its results.
    assert f"--workspace {place}" in done.stdout
    assert run(tmp_path, "sweep", "status", "--workspace", str(place)).returncode == 0
    assert f"{place} is used" in run(tmp_path, "sweep", "status").stderr
    assert run(tmp_path, "sweep", "resume").returncode == 2, "it would measure"
    chosen = ("--axis", "batch=2", "--input", "ids=ids:9")
    again = run(tmp_path, "run", "net.onnx", "--repeats", "1", *SHORT, *chosen, "--json")
    assert "note:" not in again.stderr
    assert len(json.loads(again.stdout)["cells"]) == 1
    records = [json.loads(path.read_bytes()) for path in place.glob("results/sweeps/*.json")]
    assert [one["spec"]["measure"]["max_time_s"] for one in records] == [0.1, 0.1]


def test_the_plan_of_a_sweep_with_rounds_names_the_devices_that_take_turns(folder: Path) -> None:
    (folder / "cards").mkdir(exist_ok=True)
    (folder / "cards/tiny.toml").write_text('source = "file"\nentry = "../a.onnx"\n')
    (folder / "sweeps/turns.yaml").write_text(
        "name: turns\nmodels: tiny\nruntimes: onnx\nrounds: {cells: 5}\n"
    )
    done = run(folder, "sweep", "plan", "turns")
    assert done.returncode == 0, done.stderr
    assert "up to 5 cells take turns on cpu-" in done.stdout
