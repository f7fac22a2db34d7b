"""Boards of this machine; sockets need a short path, which pytest's own folders do not have."""

import tempfile
from collections.abc import Iterator

import pytest
from ssh_board import SshBoard, ssh_board, why_no_sshd


@pytest.fixture
def short_runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix="run-", ignore_cleanup_errors=True) as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield


@pytest.fixture
def board(short_runtime: None) -> Iterator[SshBoard]:
    """Its home folder has a name with a space and quotes."""
    if (reason := why_no_sshd()) is not None:
        pytest.skip(reason)
    with ssh_board(home_name='it\'s a "home"') as found:
        yield found
