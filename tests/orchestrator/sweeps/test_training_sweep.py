"""A step of training through a whole sweep: exported, verified by a worker, measured, shown."""

import pytest
from world import NETWORK

pytestmark = pytest.mark.export


@pytest.mark.thorough
def test_a_step_is_verified_and_measured_beside_an_inference(folder) -> None:
    (folder.root / "cards" / "mine.toml").write_text(NETWORK)
    path = folder.write_spec(["mine"], ["local-cpu"], repeats=1)
    text = path.read_text().replace("runtimes: [onnx]", "runtimes: [torch]\nbatch: 4")
    path.write_text(text + "workloads: [image, train@4, train@4+adamw]\n")
    done = folder.run("sweep", "run", "t", "--inline")
    rows = {row["workload"]: row for row in folder.rows()}
    assert set(rows) == {None, "train@4", "train@4+adamw"}, done.stderr
    for name, row in rows.items():
        assert row["status"] == "ok", (name, row["error_message"])
        assert (row["batch"], row["artifact_format"]) == (4, "pt2")
        assert row["artifact_max_relative_error"] < 1e-4
    assert 2 < rows["train@4"]["flops"] / rows[None]["flops"] < 3
    shown = folder.run("report", "show", "latency", "--part", "training", "--format", "json")
    assert '"over_inference"' in shown.stdout
