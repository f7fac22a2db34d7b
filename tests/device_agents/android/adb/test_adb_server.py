import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetrank.device_agents.android.adb.adb_server import AdbServer, find_adb, find_port
from fleetrank.device_agents.errors import MissingLibraryError, PermanentError, TransientError

MakeAdb = Callable[[str], Path]


@pytest.fixture
def make_adb(tmp_path: Path) -> MakeAdb:
    def make(script: str) -> Path:
        path = tmp_path / "adb"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return make


def test_a_given_adb_wins_over_the_variable(
    make_adb: MakeAdb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_adb("true")
    monkeypatch.setenv("FLEETRANK_ADB", str(tmp_path / "other"))
    assert find_adb(str(path)) == path
    with pytest.raises(PermanentError, match="other"):
        find_adb()


def test_the_wheel_is_preferred_to_path(make_adb: MakeAdb, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("adbutils")
    monkeypatch.delenv("FLEETRANK_ADB", raising=False)
    monkeypatch.setenv("PATH", str(make_adb("true").parent))
    assert find_adb().parent.name == "binaries"


def test_without_the_wheel_path_is_searched_and_then_the_extra_named(
    make_adb: MakeAdb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLEETRANK_ADB", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    path = make_adb("true")
    monkeypatch.setenv("PATH", str(path.parent))
    assert find_adb() == path
    path.unlink()
    with pytest.raises(MissingLibraryError, match="android"):
        find_adb()


def test_the_port_is_adbs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANDROID_ADB_SERVER_PORT", raising=False)
    assert find_port() == 5037
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", "41234")
    assert find_port() == 41234
    for wrong in ("0", "65536", "tcp:1", ""):
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", wrong)
        with pytest.raises(PermanentError):
            find_port()


@pytest.mark.slow
def test_a_binary_that_is_no_adb_is_told(make_adb: MakeAdb) -> None:
    server = AdbServer(make_adb("echo hello"), port=1)
    with pytest.raises(PermanentError, match="does not print its version"):
        server.version()


@pytest.mark.slow
def test_a_server_that_cannot_start_says_why(make_adb: MakeAdb) -> None:
    server = AdbServer(make_adb("echo 'cannot bind'; exit 1"), port=_free_port())
    with pytest.raises(TransientError, match="cannot bind"):
        server.devices()


@pytest.mark.slow
def test_a_file_that_cannot_run_is_told(tmp_path: Path) -> None:
    path = tmp_path / "adb"
    path.write_text("not a program")
    with pytest.raises(PermanentError, match="cannot be run"):
        AdbServer(path, port=1).version()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
