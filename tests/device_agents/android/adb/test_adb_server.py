import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from adb_bench import free_port

from fleetrank.device_agents.android.adb_address import find_address, find_port
from fleetrank.device_agents.android.adb_server import AdbServer, find_adb
from fleetrank.device_agents.android.agent import AndroidAgent
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


@pytest.mark.slow
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


VARIABLES = ("ADB_SERVER_SOCKET", "ANDROID_ADB_SERVER_ADDRESS", "ANDROID_ADB_SERVER_PORT")


@pytest.mark.parametrize(
    ("values", "address"),
    [
        (("", "", "5037"), ("127.0.0.1", 5037)),
        (("", "bench", "41234"), ("bench", 41234)),
        (("tcp:7000", "bench", "41234"), ("127.0.0.1", 7000)),
        (("tcp:farm.lan:7000", "bench", "41234"), ("farm.lan", 7000)),
        (("tcp:[::1]:7000", "", "5037"), ("::1", 7000)),
    ],
)
def test_the_address_is_adbs_own(
    values: tuple[str, ...], address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in zip(VARIABLES, values, strict=True):
        monkeypatch.setenv(name, value)
    assert find_address() == address


@pytest.mark.parametrize(
    "value",
    ["localfilesystem:/tmp/adb", "vsock:3:5037", "tcp:", "tcp:bench:0", "tcp:a b:1", "5037"],
)
def test_another_kind_of_address_is_refused_by_the_name_of_its_variable(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADB_SERVER_SOCKET", value)
    with pytest.raises(PermanentError, match="ADB_SERVER_SOCKET"):
        find_address()


def test_a_device_names_its_own_server(make_adb: MakeAdb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADB_SERVER_SOCKET", "tcp:farm:7000")
    monkeypatch.setenv("FLEETRANK_ADB", str(make_adb("true")))
    server = AndroidAgent({"serial": "x", "adb_server": "bench:41234"}).phone().server
    assert (server.host, server.port) == ("bench", 41234)
    with pytest.raises(PermanentError, match="option adb_server"):
        AndroidAgent({"serial": "x", "adb_server": "41234"}).phone()


@pytest.fixture
def never_started(
    make_adb: MakeAdb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """An adb that would leave a note if it was called, and a runtime folder of the test's own."""
    note = tmp_path / "started"
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("FLEETRANK_ADB", str(make_adb(f"touch {note}; exit 1")))
    yield find_adb()
    assert not note.exists()


def test_no_server_is_started_on_another_host(
    never_started: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.create_connection", _refused)
    with pytest.raises(TransientError, match="bench:5037") as caught:
        AdbServer(never_started, address="bench:5037").devices()
    assert "ADB_SERVER_SOCKET" in caught.value.remedy


def test_no_server_is_started_where_a_foreign_one_served(never_started: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        port = int(foreign.getsockname()[1])
        assert AdbServer(never_started, port).answers()
    with pytest.raises(TransientError, match="fleetrank did not start"):
        AdbServer(never_started, port).devices()


def test_no_server_is_started_where_only_a_device_names_one(never_started: Path) -> None:
    with pytest.raises(TransientError) as caught:
        AdbServer(never_started, address=f"127.0.0.1:{free_port()}").devices()
    assert "tunnel" in caught.value.remedy


@pytest.mark.slow
def test_the_address_that_was_chosen_reaches_adb_alone(
    make_adb: MakeAdb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADB_SERVER_SOCKET", "tcp:7000")
    adb = make_adb('echo "Version $ADB_SERVER_SOCKET$ANDROID_ADB_SERVER_ADDRESS."')
    assert AdbServer(adb).version() == "."


def _refused(address: tuple[str, int], **_options: object) -> NoReturn:
    raise ConnectionRefusedError(f"nothing at {address[0]}")


@pytest.mark.slow
def test_a_binary_that_is_no_adb_is_told(make_adb: MakeAdb) -> None:
    server = AdbServer(make_adb("echo hello"), port=1)
    with pytest.raises(PermanentError, match="does not print its version"):
        server.version()


@pytest.mark.slow
def test_a_server_that_cannot_start_says_why(make_adb: MakeAdb) -> None:
    server = AdbServer(make_adb("echo 'cannot bind'; exit 1"), port=free_port())
    with pytest.raises(TransientError, match="cannot bind"):
        server.devices()


@pytest.mark.slow
def test_a_file_that_cannot_run_is_told(tmp_path: Path) -> None:
    path = tmp_path / "adb"
    path.write_text("not a program")
    with pytest.raises(PermanentError, match="cannot be run"):
        AdbServer(path, port=1).version()
