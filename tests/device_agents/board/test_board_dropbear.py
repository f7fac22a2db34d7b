"""A board with dropbear in place of sshd, and BusyBox in place of a shell."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from ssh_board import BUSYBOX, SshBoard, dropbear_board, why_no_dropbear

from fleetrank.device_agents.board.ssh import SshConnection
from fleetrank.device_agents.errors import AgentError
from fleetrank.foundation.vocabulary import ErrorKind, Runtime, Status
from tests.device_agents.conftest import make_task

pytestmark = pytest.mark.slow


@pytest.fixture
def small_board(short_runtime: None) -> Iterator[SshBoard]:
    if (reason := why_no_dropbear()) is not None:
        pytest.skip(reason)
    with dropbear_board() as found:
        yield found


def test_it_really_is_busybox(small_board: SshBoard) -> None:
    words = ["sh", "-c", "readlink -f $SHELL"]
    end = SshConnection(small_board.target).run(words, timeout_s=30.0)
    assert end.stdout.strip() == os.path.realpath(os.environ[BUSYBOX])


def test_a_board_with_dropbear_measures(small_board: SshBoard, onnx_file: Path) -> None:
    agent = small_board.agent()
    assert agent.probe().logical_cores
    seen = agent.measure(make_task(onnx_file, Runtime.ONNX, is_trusted=True))
    assert seen.status is Status.OK, seen.failure
    assert small_board.kept == [], "acknowledged"


def test_its_refusals_are_for_a_person(small_board: SshBoard, onnx_file: Path) -> None:
    (small_board.home / ".ssh" / "authorized_keys").write_text("")
    failure = small_board.agent().measure(make_task(onnx_file, Runtime.ONNX)).failure
    assert failure is not None
    assert (failure.kind, failure.is_transient) == (ErrorKind.DEVICE_LOST, False)
    with pytest.raises(AgentError, match="accepts no key"):
        SshConnection(small_board.target).run(["true"], timeout_s=30.0)
