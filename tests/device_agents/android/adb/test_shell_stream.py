import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.device_agents.android.phone_streams import read_marked, read_packets, split_marked
from fleetrank.device_agents.android.smart_socket import SmartSocket
from fleetrank.device_agents.errors import BadOutputError, TransientError


@given(
    text=st.text(st.characters(exclude_characters="\r", exclude_categories=["Cs"])),
    code=st.integers(0, 255),
)
def test_output_and_exit_code_come_apart(text: str, code: int) -> None:
    printed = f"{text}\nMARK {code}\n".replace("\n", "\r\n")
    found = split_marked(printed, "MARK")
    assert (found.exit_code, found.stdout) == (code, text)


@given(st.text())
def test_output_without_the_mark_is_a_lost_phone(text: str) -> None:
    with pytest.raises(TransientError):
        split_marked(text, "0f0f0f0f")


def test_a_mark_in_the_middle_is_output() -> None:
    found = split_marked("a\nMARK 0\nb\nMARK 7\n", "MARK")
    assert (found.exit_code, found.stdout) == (7, "a\nMARK 0\nb")


@contextmanager
def endless(data: bytes) -> Iterator[SmartSocket]:
    """A connection whose other side sends `data` again and again."""

    def send(server: socket.socket) -> None:
        client, _ = server.accept()
        with client, suppress(OSError):
            while True:
                client.sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=send, args=(server,))
        thread.start()
        with SmartSocket(*server.getsockname(), timeout_s=20.0) as connection:
            yield connection
        thread.join()


def packet(kind: int, data: bytes) -> bytes:
    return bytes([kind]) + len(data).to_bytes(4, "little") + data


@pytest.mark.parametrize("kind", [1, 2, 9])
def test_no_kind_of_packet_gets_past_the_bound(kind: int) -> None:
    with (
        endless(packet(kind, b"level: 44\n" * 100)) as connection,
        pytest.raises(BadOutputError, match="more than 5000 bytes"),
    ):
        read_packets(connection, 5000)


def test_a_packet_that_announces_too_much_is_not_received() -> None:
    with (
        endless(packet(1, b"x" * 10)[:1] + b"\xff\xff\xff\xff") as connection,
        pytest.raises(BadOutputError, match="more than 65536 bytes"),
    ):
        read_packets(connection, 65536)


def test_a_plain_stream_ends_at_the_bound_and_the_rest_is_not_read() -> None:
    with endless(b"\r" * 65536) as connection:
        with pytest.raises(BadOutputError, match="what was read is"):
            read_marked(connection, "0f", 65536)
        assert connection.receive()  # what came after waits, unread


def test_any_number_of_carriage_returns_ends_a_line() -> None:
    assert split_marked("a\r\r\r\nb\rc\r\n0f 3\r\n", "0f").stdout == "a\nb\rc"
