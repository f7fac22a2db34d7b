"""`fleetrank ab` and `run` with real files and real workers."""

import json
from pathlib import Path
from subprocess import CompletedProcess

import onnx
import polars as pl
import pytest
from onnx import TensorProto, helper
from tiny_onnx import save_tiny_onnx
from wording import has
from world import World, call_inside

pytestmark = pytest.mark.slow
SHORT = ("--max-time", "0.1")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    save_tiny_onnx(tmp_path / "a.onnx")
    (tmp_path / "cluster.yaml").touch()
    return tmp_path


def run(folder: Path, *words: str) -> CompletedProcess[str]:
    return call_inside(folder, folder, *words)


def test_two_files_take_turns_and_are_a_sweep_afterwards(world: World) -> None:
    done = world.said["ab"]
    assert done["code"] == 0, done["err"]
    found = json.loads(done["out"])
    assert (found["rounds"], found["verdict"], found["margin"]) == (3, "same", 9.0)
    assert found["ratio_low"] < found["ratio"] < found["ratio_high"]
    rows = pl.DataFrame(world.rows("ab"))
    assert rows.height == 6
    assert set(rows["design"]) == {"rounds"}
    assert rows.group_by("round_id").len()["len"].to_list() == [2, 2, 2]
    assert found["sweep_id"] in world.call("results", "list", "--json").stdout
    again = world.call("sweep", "resume", found["sweep_id"], "--inline")
    assert "0 left" in again.stdout + again.stderr


@pytest.mark.thorough
def test_two_files_take_turns_until_their_order_is_decided(folder: Path) -> None:
    save_tiny_onnx(folder / "large.onnx", height=2048)
    words = ("--until-decided", "--rounds", "12", "--json", *SHORT)
    done = run(folder, "ab", "a.onnx", "large.onnx", *words)
    found = json.loads(done.stdout)
    assert found["verdict"] == "slower", done.stderr
    assert found["rounds"] < 12
    assert found["ratio_low"] > 1
    assert "at most 12 rounds" in found["notes"][-1]


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


@pytest.mark.thorough
def test_a_file_is_measured_without_a_workspace_and_what_nobody_chose_is_said(
    folder: Path,
) -> None:
    (folder / "cluster.yaml").unlink()
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", 4])
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, ["batch", 4, 2])
    table = helper.make_tensor("table", TensorProto.FLOAT, [9, 2], [0.5] * 18)
    node = helper.make_node("Gather", ["table", "ids"], ["out"])
    graph = helper.make_graph([node], "g", [ids], [out], [table])
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), folder / "net.onnx")
    done = run(folder, "run", "net.onnx", "--repeats", "1", *SHORT)
    assert done.returncode == 0, done.stderr
    place = folder / "data" / "fleetrank"
    assert f"{place} is used" in done.stderr
    assert has(done.stderr, "batch", "measured at 1", "--axis batch=1,8")
    assert has(done.stderr, "ids", "0 or 1", "--input ids=ids:30522")
    # The commands that it names find its results.
    assert f"--workspace {place}" in done.stdout
    assert run(folder, "sweep", "status", "--workspace", str(place)).returncode == 0
    assert f"{place} is used" in run(folder, "sweep", "status").stderr
    assert run(folder, "sweep", "resume").returncode == 2, "it would measure"
    chosen = ("--axis", "batch=2", "--input", "ids=ids:9")
    again = run(folder, "run", "net.onnx", "--repeats", "1", *SHORT, *chosen, "--json")
    assert "note:" not in again.stderr
    assert len(json.loads(again.stdout)["cells"]) == 1
    records = [json.loads(path.read_bytes()) for path in place.glob("results/sweeps/*.json")]
    assert [one["spec"]["measure"]["max_time_s"] for one in records] == [0.1, 0.1]


def test_the_plan_of_a_sweep_with_rounds_names_the_devices_that_take_turns(folder: Path) -> None:
    for name in ("cards", "sweeps"):
        (folder / name).mkdir()
    for name in ("tiny", "other"):
        (folder / f"cards/{name}.toml").write_text('source = "file"\nentry = "../a.onnx"\n')
    spec = folder / "sweeps/turns.yaml"
    spec.write_text("name: turns\nmodels: [tiny, other, resnet50]\nruntimes: onnx\n")
    done = run(folder, "sweep", "plan", "turns")
    assert done.returncode == 0, done.stderr
    # Three workers of 300 MiB, and three times the 102 MB of ResNet-50's weights.
    words = "3 cells take turns on", "about 1.2 GiB", "rounds: off"
    assert has(done.stdout, *words), done.stdout
    alone = run(folder, "sweep", "plan", "turns", "--only", "resnet50")
    assert "take turns" not in alone.stdout
    spec.write_text(f"{spec.read_text()}rounds: off\n")
    assert "take turns" not in run(folder, "sweep", "plan", "turns").stdout
