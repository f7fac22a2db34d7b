"""The wire of adb: what a server or a phone sends us, however the network cuts it."""

import hashlib

from hypothesis import strategies as st
from mutation import arbitrary, mutated, one_of
from target import Target, scratch

from fleetrank.device_agents.android.file_sync import fetch_file, send_file
from fleetrank.device_agents.android.phone_streams import read_marked, read_packets, split_marked
from fleetrank.device_agents.android.smart_socket import RefusedRequestError, SmartSocket
from fleetrank.device_agents.device_output import MAX_PROBE_BYTES
from fleetrank.device_agents.errors import AgentError

MARK = "0f0f"
WORDS = tuple(map(str.encode, ("OKAY", "FAIL", "STAT", "DATA", "DONE", "SEND", "RECV", "LIST",
                               "SND2", "QUIT")))  # fmt: skip
REFUSALS = (AgentError, RefusedRequestError)


class Scripted(SmartSocket):
    """A connection whose other side has said everything already, in pieces of one size."""

    def __init__(self, data: bytes, piece: int) -> None:
        self._rest = data
        self._piece = piece
        self.sent = bytearray()

    def send(self, data: bytes) -> None:
        self.sent += data

    def receive(self, limit: int = 65536) -> bytes:
        size = min(limit, self._piece)
        found, self._rest = self._rest[:size], self._rest[size:]
        return found


def _in_any_pieces(data: bytes, read: object) -> object:
    """However the network cuts a stream, the answer is one."""
    answers = [_said(data, piece, read) for piece in (1 << 20, 7)]
    assert answers[0] == answers[1], "the pieces of the network change the answer"
    if isinstance(answers[0], Exception):
        raise answers[0]
    return answers[0]


def _said(data: bytes, piece: int, read: object) -> object:
    try:
        return read(Scripted(data, piece))  # type: ignore[operator]
    except REFUSALS as error:
        return _Said(error)


class _Said(Exception):  # noqa: N818 - an answer to compare
    """A refusal that equals another of the same words."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {error}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Said) and self.args == other.args

    __hash__ = None  # type: ignore[assignment]


def request(data: bytes) -> object:
    def read(connection: Scripted) -> object:
        connection.request("host:devices-l")
        return connection.read_block()

    return _in_any_pieces(data, read)


def shell_packets(data: bytes) -> object:
    return _in_any_pieces(data, lambda connection: read_packets(connection, MAX_PROBE_BYTES))


def shell_marked(data: bytes) -> object:
    found = _in_any_pieces(data, lambda connection: read_marked(connection, MARK, MAX_PROBE_BYTES))
    assert found == split_marked(data.decode("utf-8", "replace"), MARK)
    return found


def file_from_phone(data: bytes) -> object:
    local = scratch() / "fetched"

    def read(connection: Scripted) -> object:
        fetch_file(connection, "/data/x", local, max_bytes=1 << 20)
        return local.read_bytes()

    return _in_any_pieces(data, read)


def file_to_phone(data: bytes) -> object:
    local = scratch() / "pushed"
    local.write_bytes(b"x" * 100)

    def read(connection: Scripted) -> object:
        send_file(connection, local, "/data/x", mode=0o644, digest=hashlib.sha256())
        return bytes(connection.sent[:-4])

    return _in_any_pieces(data, read)


def _block(text: bytes) -> bytes:
    return f"{len(text):04x}".encode() + text


def _packet(kind: int, data: bytes) -> bytes:
    return bytes([kind]) + len(data).to_bytes(4, "little") + data


def _sync(word: bytes, data: bytes) -> bytes:
    return word + len(data).to_bytes(4, "little") + data


_bytes = st.binary(max_size=60)
_packets = st.lists(st.builds(_packet, st.integers(0, 6), _bytes), max_size=6).map(b"".join)
_answers = st.lists(st.builds(_sync, one_of(WORDS), _bytes), max_size=5).map(b"".join)
_stat = b"STAT" + (0o100644).to_bytes(4, "little") + (3).to_bytes(4, "little") + b"\0" * 4
_whole_file = _stat + _sync(b"DATA", b"abc") + _sync(b"DONE", b"")
SAID = (AgentError, RefusedRequestError, _Said)
TARGETS = (
    Target(
        request,
        st.one_of(
            mutated((b"OKAY" + _block(b"x\tdevice"), b"FAIL" + _block(b"no")), (b"OKAY", b"FAIL")),
            arbitrary(40),
        ),
        may_raise=SAID,
        name="adb_answer",
    ),
    Target(
        shell_packets,
        st.one_of(_packets, mutated((_packet(1, b"out") + _packet(2, b"e") + _packet(3, b"\0"),))),
        may_raise=SAID,
    ),
    Target(
        shell_marked,
        mutated((f"out\n{MARK} 0\n".encode(), f"a\r\n{MARK} 7\r\n".encode()), (MARK.encode(),)),
        may_raise=SAID,
    ),
    Target(
        file_from_phone,
        st.one_of(_answers.map(_stat.__add__), mutated((_whole_file,), WORDS)),
        may_raise=SAID,
    ),
    Target(
        file_to_phone,
        st.one_of(_answers, mutated((b"OKAY\0\0\0\0", _sync(b"FAIL", b"full")), WORDS)),
        may_raise=SAID,
        share=0.5,
    ),
)
