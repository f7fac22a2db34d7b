"""The main commands from a file to a page: `make test-pythons` runs them on another Python."""

import json
import shutil
from pathlib import Path

import pytest

DATA = Path(__file__).parents[2] / "models/data"


@pytest.mark.thorough
@pytest.mark.slow
def test_a_file_is_measured_queried_and_shown_without_a_warning(
    folder, onnx_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONWARNINGS", "error")  # for the workers
    shutil.copy(onnx_file, folder.root / "net.onnx")
    shutil.copy(DATA / "uint8.tflite", folder.root)

    def call(*words: str) -> str:
        done = folder.call(*words, warnings_are="error")
        assert done.returncode == 0, done.stderr
        return done.stdout

    lines = call("run", "net.onnx", "--inline").splitlines()
    header = next(at for at, line in enumerate(lines) if line.startswith("model "))
    interval = {"latency_ms", "latency_low_ms", "latency_high_ms"}
    assert interval | {"platform", "peak_memory_mib"} <= set(lines[header].split())
    assert lines[header + 1].startswith("net-")
    assert ": 5 measured, 0 failed" in "".join(lines)
    rows = folder.rows()
    assert {(row["status"], row["runtime"], row["origin"]) for row in rows} == {
        ("ok", "onnx", "measured")
    }
    assert folder.record().spec_path == "fleetrank run net.onnx --inline"
    call("sweep", "resume", "--inline")
    assert folder.rows() == rows, "it is a sweep afterwards"
    found = call("run", "uint8.tflite", "--repeats", "1", "--inline", "--json")
    (cell,) = json.loads(found)["cells"]
    assert cell["latency_ms"] > 0
    sql = "SELECT DISTINCT runtime FROM measurements WHERE status = 'ok' ORDER BY runtime"
    assert [row["runtime"] for row in json.loads(call("query", sql, "--json"))] == [
        "onnx",
        "tflite",
    ]
    call("report", "build", "--out", "page.html")
    assert "uint8" in (folder.root / "page.html").read_text()
