"""Boards of this machine; sockets need a short path, which pytest's own folders do not have."""

import tempfile
from collections.abc import Iterator

import pytest
from ssh_board import SshBoard, ssh_board

from fleetrank.device_agents.board import ssh


@pytest.fixture(autouse=True)
def soon_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that was cut in silence is noticed after 3 s instead of 15."""
    slow = f"ServerAliveInterval={ssh.ALIVE_S}"
    assert slow in ssh._OPTIONS
    soon = [one.replace(slow, "ServerAliveInterval=1") for one in ssh._OPTIONS]
    monkeypatch.setattr(ssh, "_OPTIONS", tuple(soon))


@pytest.fixture
def short_runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix="run-", ignore_cleanup_errors=True) as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield


@pytest.fixture
def board(short_runtime: None) -> Iterator[SshBoard]:
    """Its home folder has a name with a space and quotes."""
    with ssh_board(home_name='it\'s a "home"') as found:
        yield found
