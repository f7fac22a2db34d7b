"""Answers that no honest worker and no honest board gives: each fails alone, as `bad_output`."""

import sys
import tempfile
from collections import Counter
from pathlib import Path

import forged_replies
import pytest
from forged_replies import FORGERIES
from ssh_board import ssh_board

from fleetrank.device_agents.cpu import CpuAgent
from fleetrank.orchestrator.cli.main import run

pytestmark = pytest.mark.thorough

_BOARD = """name: pi5
kind: board
options: {{ssh: board, ssh_config: {config}, python: {python}}}
"""


def ends(folder) -> Counter[tuple[object, object]]:
    return Counter((row["status"], row["error_kind"]) for row in folder.rows())


def run_with_forgeries(folder, device: str, onnx_file: Path, monkeypatch) -> None:
    """A sweep of one cell more than there are forgeries, and its resume."""
    models = [f"net{number}" for number in range(len(FORGERIES) + 1)]
    for name in models:
        folder.add_model(name, onnx_file)
    spec = folder.write_spec(models, [device], repeats=1)
    spec.write_text(spec.read_text() + "rounds: off\n")  # each answer is that of one cell
    monkeypatch.chdir(folder.root)
    monkeypatch.setenv("HOME", str(folder.home))
    assert run(["sweep", "run", "t", "--inline", "--progress", "none"]) == 3
    wanted = Counter({("failed", "bad_output"): len(FORGERIES), ("ok", None): 1})
    assert ends(folder) == wanted
    assert run(["sweep", "resume", "--inline", "--progress", "none"]) == 3
    assert ends(folder) == wanted
    assert run(["results", "verify"]) == 0


def test_a_forged_answer_of_a_worker_is_one_failed_row(
    folder, onnx_file, tmp_path, monkeypatch
) -> None:
    forgeries = forged_replies.lay_out(tmp_path / "forgeries")
    command = (sys.executable, "-P", forged_replies.__file__, str(forgeries))
    monkeypatch.setattr(CpuAgent.__init__, "__kwdefaults__", {"command": command})
    run_with_forgeries(folder, "local-cpu", onnx_file, monkeypatch)


def test_a_forged_answer_of_a_board_is_one_failed_row(
    folder, onnx_file, tmp_path, monkeypatch
) -> None:
    forgeries = forged_replies.lay_out(tmp_path / "forgeries")
    python = forged_replies.board_python(forgeries, tmp_path / "python")
    with tempfile.TemporaryDirectory(prefix="run-", ignore_cleanup_errors=True) as runtime:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        with ssh_board() as board:
            text = _BOARD.format(config=board.config, python=python)
            (folder.root / "devices" / "pi5.yaml").write_text(text)
            run_with_forgeries(folder, "pi5", onnx_file, monkeypatch)
            assert board.kept == []
