"""A sweep of a board and of this host's CPU; the line to the board is cut in the middle."""

import sys

import pytest
from ssh_board import SshBoard
from waiting import ended, ok_repeats, start, wait_until

from fleetrank.analysis.stored.replica_runs import REPLICA_RUNS
from fleetrank.analysis.stored.side_tables import read_side

pytestmark = pytest.mark.thorough

_DEVICE = """name: pi5
kind: board
options: {{ssh: board, ssh_config: {config}, python: {python}, max_wait_s: {wait_s}}}
"""


def add_board(folder, board: SshBoard, wait_s: float) -> None:
    text = _DEVICE.format(config=board.config, python=sys.executable, wait_s=wait_s)
    (folder.root / "devices" / "pi5.yaml").write_text(text)


def test_what_the_board_kept_is_adopted_after_the_conductor_died(
    folder, onnx_file, board: SshBoard
) -> None:
    folder.add_model("one", onnx_file)
    folder.write_spec(["one"], ["pi5"], repeats=2)
    add_board(folder, board, wait_s=120.0)
    process = start(folder, "--inline")
    wait_until(lambda: bool(board.processes("worker")), "the worker", 120.0)
    board.relay.cut()
    process.kill()
    process.communicate()
    wait_until(lambda: len(board.kept) == 1, "the result on the board", 120.0)
    (kept,) = board.kept
    board.relay.restore()
    board.relay.reset()

    resumed = folder.start("sweep", "resume", "--inline")
    code, error = ended(resumed, 240.0)
    assert code == 0, error
    assert sorted(ok_repeats(folder).values()) == [1] * 2, "each repeat is measured once"
    samples = [list(row["samples_ns"]) for row in folder.rows()]
    assert kept["samples_ns"] in samples, "the kept repeat was not measured again"
    assert board.kept == [], "acknowledged"


def test_sets_of_processes_run_on_a_board(folder, onnx_file, board: SshBoard) -> None:
    folder.add_model("one", onnx_file)
    spec = folder.write_spec(["one"], ["pi5"], repeats=1)
    spec.write_text(spec.read_text() + "replicas: {processes: [1, 2], run_s: 0.1}\n")
    add_board(folder, board, wait_s=60.0)
    done = folder.call("sweep", "run", "t", "--inline")
    assert done.returncode == 0, done.stderr
    stored = read_side(folder.root / "results", REPLICA_RUNS)
    assert stored["n_replicas"].to_list() == [1, 2, 2]
    assert set(stored["status"]) == {"ok"}
    assert set(stored["device"]) == {"pi5"}
