"""Evaluations on a board over ssh: the figures are those of this host, also after a cut line."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ssh_board import SshBoard

from fleetrank.analysis.stored.evaluations import EVALUATIONS
from fleetrank.analysis.stored.side_tables import read_side
from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.workspace.workspace import Workspace

pytestmark = pytest.mark.slow

LM_EVAL = Path(__file__).parents[2] / "data" / "lm_eval"
METRICS = {"perplexity", "bits_per_byte", "token_top1", "token_top5"}
OLDER = "FLEETRANK_OLDER_PYTHON"
"""Path of a Python 3.10 with NumPy and ONNX Runtime."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Workspace.init(tmp_path)
    return tmp_path


def add_device(folder: Path, options: str, host: str = "null") -> None:
    text = f"name: pi5\nkind: board\nhost: {host}\noptions: {{ssh: board, {options}}}\n"
    (folder / "devices" / "pi5.yaml").write_text(text)


def command(folder: Path, text: Path, device: str) -> list[str]:
    return [
        "eval", "ppl", "--model", "stories260k", "--text", str(text), "--tokenizer", "bytes",
        "--seeded", "--runtime", "onnx", "--window", "64", "--device", device,
        "--workspace", str(folder),
    ]  # fmt: skip


def rows_of(folder: Path, *, is_board: bool) -> dict[str, dict[str, object]]:
    rows = read_side(folder / "results", EVALUATIONS).to_dicts()
    return {row["quality_metric"]: row for row in rows if (row["device"] == "pi5") == is_board}


def check_equal(folder: Path) -> dict[str, object]:
    """Compares every metric of the two devices; returns a row of the board."""
    here, there = rows_of(folder, is_board=False), rows_of(folder, is_board=True)
    assert there.keys() == here.keys() == METRICS
    for name, row in there.items():
        assert row["quality"] == pytest.approx(here[name]["quality"], rel=1e-6)
        same = ("artifact_sha256", "data_sha256", "n_tokens", "backend", "flags")
        assert {key: row[key] for key in same} == {key: here[name][key] for key in same}
    versions = {row["runtime_version"] for row in here.values()}
    assert versions == {importlib.metadata.version("onnxruntime")}
    return there["perplexity"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "is_older",
    [False, pytest.param(True, marks=pytest.mark.skipif(OLDER not in os.environ, reason=OLDER))],
)
def test_a_board_has_the_perplexity_of_this_host(
    folder: Path, board: SshBoard, *, is_older: bool
) -> None:
    python = os.environ[OLDER] if is_older else sys.executable
    add_device(folder, f"ssh_config: {board.config}, python: {python}")
    for device in ("local-cpu", "pi5"):
        assert run(command(folder, LM_EVAL / "text.jsonl", device)) == 0
    row = check_equal(folder)
    asked = [python, "-P"] if not is_older else [python]
    ask = "import importlib.metadata as m; print(m.version('onnxruntime'))"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    version = subprocess.run(
        [*asked, "-c", ask], env=environment, check=True, capture_output=True, text=True
    ).stdout
    assert row["runtime_version"] == version.strip(), "of the board, not of this host"
    names = [path.name for path in board.files]
    assert names == [f"{row['artifact_sha256']}.onnx"], "inputs and outputs were removed"


@pytest.mark.parametrize(("options", "host"), [("gpu: only", "null"), ("tier: cpu", "other")])
def test_a_gpu_of_a_board_and_a_board_of_another_host_are_refused(
    folder: Path, options: str, host: str, capfd: pytest.CaptureFixture[str]
) -> None:
    add_device(folder, options, host)
    assert run(command(folder, LM_EVAL / "text.jsonl", "pi5")) == 2
    assert "returns no outputs" in capfd.readouterr().err
