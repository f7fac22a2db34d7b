"""A sweep of a board and of this host's CPU; the line to the board is cut in the middle."""

import sys

import pytest
from ssh_board import SshBoard
from waiting import ended, ok_repeats, start, wait_until

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
