"""The main commands from a file to a page: `make test-pythons` runs them on another Python."""

import json
import shutil
from pathlib import Path

import pytest

DATA = Path(__file__).parents[2] / "models/data"


@pytest.mark.slow
def test_a_file_is_measured_queried_and_shown_without_a_warning(folder, onnx_file) -> None:
    shutil.copy(onnx_file, folder.root / "net.onnx")
    shutil.copy(DATA / "uint8.tflite", folder.root)
    strict = {"PYTHONWARNINGS": "error"}
    for name in ("net.onnx", "uint8.tflite"):
        done = folder.run("run", name, "--repeats", "1", "--inline", "--json", env=strict)
        assert done.returncode == 0, done.stderr
        (cell,) = json.loads(done.stdout)["cells"]
        assert cell["latency_ms"] > 0
    sql = "SELECT DISTINCT runtime FROM measurements WHERE status = 'ok' ORDER BY runtime"
    asked = folder.run("query", sql, "--json", env=strict)
    assert asked.returncode == 0, asked.stderr
    assert "onnx" in asked.stdout
    assert "tflite" in asked.stdout
    built = folder.run("report", "build", "--out", "page.html", env=strict)
    assert built.returncode == 0, built.stderr
    assert "uint8" in (folder.root / "page.html").read_text()
