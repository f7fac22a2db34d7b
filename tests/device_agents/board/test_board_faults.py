"""What can go wrong between a host and a board, each against a real sshd and a real worker."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from daily import daily
from older_python import find_python
from ssh_board import SshBoard
from waiting import wait_until

from fleetrank.foundation.vocabulary import ErrorKind, Runtime, Status
from tests.device_agents.conftest import QUICK, make_task

pytestmark = pytest.mark.slow


def test_what_was_measured_while_the_line_was_cut_is_fetched(
    board: SshBoard, onnx_file: Path
) -> None:
    agent = board.agent()
    warm = agent.measure(make_task(onnx_file, Runtime.ONNX, is_trusted=True))
    assert warm.status is Status.OK, warm.failure
    policy = replace(QUICK, min_runs=10**6, max_samples=10**6, max_time_s=3.0)
    task = make_task(onnx_file, Runtime.ONNX, policy=policy, is_trusted=True)
    with ThreadPoolExecutor(max_workers=1) as pool:
        found = pool.submit(agent.measure, task)
        wait_until(lambda: bool(board.processes("worker")), "the worker", 60.0)
        board.relay.cut()
        wait_until(lambda: len(board.kept) == 1, "the result on the board", 60.0)
        board.relay.restore()
        seen = found.result(120.0)
    assert seen.status is Status.OK, seen.failure
    assert seen.stop_reason == "max_time"
    wait_until(lambda: board.kept == [], "the acknowledgement", 30.0)


@pytest.mark.parametrize(
    ("python", "said"),
    daily([("no-such-python", "no-such-python"), ("python3.9", "needs 3.10")], "python3.9"),
)
def test_a_python_that_cannot_be_used_is_named(
    board: SshBoard, onnx_file: Path, python: str, said: str
) -> None:
    if python == "python3.9":
        python = find_python("3.9")
    found = board.agent(python=python).measure(make_task(onnx_file, Runtime.ONNX)).failure
    assert found is not None
    assert (found.kind, found.is_transient) == (ErrorKind.DEVICE_LOST, False)
    assert said in found.message
    assert "`python=PATH`" in found.remedy
