"""`fleetrank run` through the real command: files, names, free axes, and what cannot run."""

import json
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from fleetrank.orchestrator.cli import main


@pytest.fixture
def encoder(folder) -> Path:
    """Adds two rows of ids of free length."""
    kinds = {"x": TensorProto.INT64, "y": TensorProto.INT64, "z": TensorProto.FLOAT}
    ends = [
        helper.make_tensor_value_info(name, kind, ["batch", "seq"]) for name, kind in kinds.items()
    ]
    nodes = [
        helper.make_node("Add", ["x", "y"], ["sum"]),
        helper.make_node("Cast", ["sum"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["number", "weight"], ["z"]),
    ]
    weight = helper.make_tensor("weight", TensorProto.FLOAT, [1], [2.0])
    graph = helper.make_graph(nodes, "g", ends[:2], ends[2:], [weight])
    opsets = [helper.make_opsetid("", 17)]
    path = folder.root / "encoder.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return path


def test_free_axes_are_cells_and_ids_stay_below_their_limit(folder, encoder) -> None:
    words = ("run", encoder.name, "--devices", "sim-a,sim-b", "--repeats", "1", "--inline")
    missing = folder.call(*words)
    assert (missing.returncode, "--axis seq=" in missing.stderr) == (2, True)
    unknown = folder.call(*words, "--axis", "seq=8", "--axis", "sec=8")
    assert (unknown.returncode, "batch, seq" in unknown.stderr) == (2, True)
    axes = ("--axis", "seq=8,16", "--axis", "batch=2")
    done = folder.call(*words, *axes, "--input", "x=ids:30522", "--json")
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    rows = folder.rows()
    assert {(row["device"], row["axes"], row["batch"]) for row in rows} == {
        (device, f"seq={size}", 2) for device in ("sim-a", "sim-b") for size in (8, 16)
    }
    card = (folder.root / "cards" / f"{found['models'][0]}.toml").read_text()
    assert "below = 30522" in card
    assert found["sweep_id"] == folder.store.newest_sweep()


def test_a_named_model_and_its_own_card_can_be_run(folder) -> None:
    done = folder.call("run", "m0", "--devices", "sim-a", "--inline", "--progress", "jsonl")
    assert done.returncode == 0, done.stderr
    assert all(json.loads(line)["event"] for line in done.stdout.splitlines())
    assert "latency_low_ms" in done.stderr
    assert len(list((folder.root / "cards").iterdir())) == 4


def test_without_progress_the_answer_is_still_printed(
    folder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder.root)
    words = ["m0", "--devices", "sim-a", "--repeats", "1", "--inline", "--progress", "none"]
    assert main.run(["run", *words]) == 0
    out, error = capsys.readouterr()
    assert out.startswith("\nmodel  platform")
    assert "\nm0 " in out
    assert f"results: {folder.root}" in out
    assert "exported" not in out + error
    assert main.run(["run", *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["models"] == ["m0"]
    folder.write_spec(["m0"], ["sim-a"])
    assert main.run(["sweep", "run", "t", "--inline", "--progress", "none"]) == 0
    assert capsys.readouterr().out.startswith(f"results: {folder.root}")


@pytest.mark.parametrize("name", ["text.onnx", "none.onnx", "net.pth", "m9"])
def test_what_cannot_be_measured_is_an_error_with_a_remedy(folder, name: str) -> None:
    if name.startswith(("text", "net")):
        (folder.root / name).write_text("this is text")
    done = folder.call("run", name, "--inline")
    assert done.returncode == 2
    assert "\n  -> " in done.stderr
    assert not (folder.root / "results").exists()
