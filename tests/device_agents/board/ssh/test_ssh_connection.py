"""The connection, against a real sshd."""

import hashlib
import sys
import threading

import pytest
from ssh_board import SshBoard
from waiting import wait_until

from fleetrank.device_agents.board.ssh import SshConnection, SshTarget
from fleetrank.device_agents.errors import (
    PermanentError,
    TimedOutError,
    TransientError,
    UnusableDeviceError,
)
from fleetrank.foundation.supervised_child import ChildEnd, End

pytestmark = pytest.mark.slow

HOSTILE = ["it's", 'a "b"', "$HOME", "`id`", "a;b", "*", "", "é", "new\nline", "-o", "\\"]


def run(connection: SshConnection, *command: str, timeout_s: float = 20.0) -> ChildEnd:
    return connection.run(command, timeout_s=timeout_s)


def test_arguments_arrive_as_they_are(board: SshBoard) -> None:
    code = "import sys; print(sys.argv[1:])"
    end = run(SshConnection(board.target), sys.executable, "-c", code, *HOSTILE)
    assert end.stdout.strip() == repr(HOSTILE)


def test_a_command_s_own_failure_is_not_the_connection_s(board: SshBoard) -> None:
    end = run(SshConnection(board.target), "sh", "-c", "echo no >&2; exit 3")
    assert (end.exit_code, end.stderr, end.end) == (3, "no\n", End.ITSELF)


def test_request_and_payload_arrive_in_order(board: SshBoard) -> None:
    parts = [bytes([n % 251]) * 65_536 for n in range(64)]
    code = (
        "import sys, hashlib; data = sys.stdin.buffer.read(7 + 64 * 65536);"
        "print(hashlib.sha256(data).hexdigest())"
    )
    end = SshConnection(board.target).run(
        [sys.executable, "-c", code], sent=[b"request", *parts], timeout_s=30.0
    )
    assert end.stdout.strip() == hashlib.sha256(b"request" + b"".join(parts)).hexdigest()


def test_connections_of_one_user_are_shared(board: SshBoard) -> None:
    for _ in range(3):
        run(SshConnection(board.target), "true")
    log = (board.folder / "sshd.log").read_text()
    assert log.count("Accepted publickey") == 1


def test_a_socket_that_was_left_behind_is_replaced(board: SshBoard) -> None:
    connection = SshConnection(board.target)
    run(connection, "true")
    board.relay.reset()
    wait_until(lambda: connection._control("check") != 0, "the shared connection to end")
    connection._socket.touch()
    assert run(connection, "echo", "again").stdout == "again\n"


def test_a_user_without_a_key_is_refused(board: SshBoard) -> None:
    board.forget_user()
    with pytest.raises(UnusableDeviceError, match="accepts no key") as caught:
        run(SshConnection(board.target), "true")
    assert "ssh-copy-id board" in caught.value.remedy


def test_a_changed_host_key_is_refused(board: SshBoard) -> None:
    board.stop()
    board.new_host_key()
    board.start()
    with pytest.raises(UnusableDeviceError, match="another host key") as caught:
        run(SshConnection(board.target), "true")
    assert "ssh-keygen -R board" in caught.value.remedy


def test_an_unknown_host_key_is_not_accepted(board: SshBoard) -> None:
    known = board.folder / "known_hosts"
    known.write_text("")
    with pytest.raises(UnusableDeviceError, match="not known yet"):
        run(SshConnection(board.target), "true")
    assert known.read_text() == ""


def test_a_board_that_is_off_is_transient(board: SshBoard) -> None:
    board.stop()
    with pytest.raises(TransientError, match="no connection to board"):
        run(SshConnection(board.target), "true")


def test_a_name_without_an_address_is_named(board: SshBoard) -> None:
    target = SshTarget(host="no-such-board.invalid", config=str(board.config))
    with pytest.raises(TransientError, match="no address is known"):
        run(SshConnection(target), "true")


@pytest.mark.parametrize("host", ["-oProxyCommand=id", "a b", "a'b", "", "a\nb", "$(id)"])
def test_a_name_that_is_no_host_is_refused_before_ssh_sees_it(host: str) -> None:
    with pytest.raises(PermanentError, match="for ssh"):
        SshConnection(SshTarget(host=host))


def test_a_hang_ends_at_the_deadline_there_too(board: SshBoard) -> None:
    note = board.home / "alive"
    script = f"import sys,pathlib; sys.stdin.read(); pathlib.Path({str(note)!r}).touch()"
    with pytest.raises(TimedOutError, match="within 1 s"):
        run(SshConnection(board.target), sys.executable, "-c", script, timeout_s=1.0)
    wait_until(note.exists, "the command to read the end of its input")


def test_a_stop_ends_the_wait(board: SshBoard) -> None:
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    end = SshConnection(board.target).run(["cat"], timeout_s=60.0, stop_requested=stop.is_set)
    assert end.end is End.STOP


def test_a_reset_in_a_command_is_transient(board: SshBoard) -> None:
    connection = SshConnection(board.target)
    run(connection, "true")
    threading.Timer(0.5, board.relay.reset).start()
    with pytest.raises(TransientError) as caught:
        run(connection, "cat", timeout_s=60.0)
    assert not isinstance(caught.value, TimedOutError)


def test_a_line_that_is_cut_in_silence_is_noticed(board: SshBoard) -> None:
    connection = SshConnection(board.target)
    run(connection, "true")
    threading.Timer(0.5, board.relay.cut).start()
    with pytest.raises(TransientError) as caught:
        run(connection, "cat", timeout_s=60.0)
    assert not isinstance(caught.value, TimedOutError)


def test_a_long_socket_path_is_not_shared(board: SshBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    long = board.folder / ("x" * 100)
    long.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    connection = SshConnection(board.target)
    assert connection._socket is None
    assert run(connection, "echo", "hello").stdout == "hello\n"
