"""Both sides of adb: what a server or a phone sends us, what a client sends our virtual phone."""

import asyncio
import hashlib
from contextlib import suppress
from functools import cache
from pathlib import Path

from hypothesis import strategies as st
from mutation import HOSTILE, arbitrary, lines, mutated, one_of
from target import ROOT, Target, scratch

from fleetrank.device_agents.android.adb_server import (
    RefusedRequestError,
    SmartSocket,
    fetch_file,
    read_marked,
    read_packets,
    send_file,
    split_marked,
)
from fleetrank.device_agents.android.adb_text import (
    DeviceState,
    error_of_refusal,
    is_connected,
    parse_devices,
    parse_mdns_services,
    shown,
)
from fleetrank.device_agents.device_output import MAX_PROBE_BYTES
from fleetrank.device_agents.errors import AgentError, TransientError
from fleetrank.device_agents.virtual_phone.farm import Connection
from fleetrank.device_agents.virtual_phone.profile import load_profiles
from fleetrank.device_agents.virtual_phone.shell_service import (
    HEADER_BYTES,
    VERSION_WITH_CHECKSUM,
    VERSION_WITHOUT_CHECKSUM,
    Command,
    Message,
    StreamClosedError,
    decode_header,
    decode_message,
    encode,
    serve_files,
)
from fleetrank.device_agents.virtual_phone.virtual_phone import (
    TOKEN_BYTES,
    PhoneSpec,
    VirtualMode,
    VirtualPhone,
    is_signed,
    read_public_key,
)

DATA = ROOT / "tests/device_agents/virtual_phone/data"
GREETING = (DATA / "cnxn.bin").read_bytes()
PUBLIC_KEY = (DATA / "adbkey.pub").read_bytes()
MARK = "0f0f"
WORDS = tuple(map(str.encode, ("OKAY", "FAIL", "STAT", "DATA", "DONE", "SEND", "RECV", "LIST",
                               "SND2", "QUIT")))  # fmt: skip
DEVICES = (
    b"List of devices attached\nemulator-5554\tdevice product:sdk model:Pixel_7 transport_id:3\n"
    b"R3CT  no permissions (user in plugdev); see [http://x] usb:1-2\n"
    b"a b\toffline\nadb-1._adb-tls-connect._tcp. device\n192.168.0.2:5555 unauthorized\n"
)
SERVICES = b"List of discovered mdns services\nadb-X\t_adb-tls-connect._tcp.\t192.168.0.2:37095\n"
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


def device_list(data: bytes) -> object:
    found = parse_devices(data.decode("utf-8", "replace"))
    assert all(one.address for one in found)
    return found


def mdns_services(data: bytes) -> object:
    return parse_mdns_services(data.decode("utf-8", "replace"))


def refusal(data: bytes) -> object:
    text = data.decode("utf-8", "replace")
    error = error_of_refusal(text[:8], text)
    assert shown(text).isprintable()
    assert str(error).isprintable(), "control characters of a phone in a message"
    assert len(str(error)) < 2000
    return type(error), error.remedy, is_connected(text)


def wire_message(data: bytes) -> object:
    header = decode_header(data[:HEADER_BYTES])
    payload = data[HEADER_BYTES:]
    message = decode_message(header, payload, version=VERSION_WITH_CHECKSUM)
    for version in (VERSION_WITH_CHECKSUM, VERSION_WITHOUT_CHECKSUM):
        sent = encode(message, version=version)
        again = decode_header(sent[:HEADER_BYTES])
        assert decode_message(again, sent[HEADER_BYTES:], version=version) == message
    return message


def stranger(data: bytes) -> object:
    """A client without the key: nothing it sends starts a service."""

    async def serve() -> object:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        writer = _Writer()
        connection = Connection(_phone(), reader, writer)  # type: ignore[arg-type]
        await connection.serve()
        assert not connection._streams, "a service without a key"
        return len(writer.sent)

    return _loop().run_until_complete(serve())


def pushed_files(data: bytes) -> object:
    """Requests of the sync protocol: every file stays inside the phone's folder."""

    async def serve() -> object:
        stream = _Stream(data)
        with suppress(StreamClosedError):
            await serve_files(_phone(), stream)  # type: ignore[arg-type]
        return bytes(stream.sent)

    outside = _names_outside()
    answer = _loop().run_until_complete(serve())
    assert _names_outside() == outside, "a file outside the phone"
    return answer


def public_key(data: bytes) -> object:
    path = scratch() / "adbkey.pub"
    path.write_bytes(data)
    key = read_public_key(path)
    if key is not None:
        assert not is_signed(b"t" * TOKEN_BYTES, data[:256], key)
    return key


class _Writer:
    """Takes what the phone says; a client that went away is one that reads no more."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.transport = self

    def write(self, data: bytes) -> None:
        self.sent += data

    def abort(self) -> None: ...

    def is_closing(self) -> bool:
        return False

    async def drain(self) -> None: ...

    async def wait_closed(self) -> None: ...


class _Stream:
    def __init__(self, data: bytes) -> None:
        self._rest = data
        self.sent = bytearray()

    async def read_exactly(self, size: int) -> bytes:
        if size > len(self._rest):
            raise StreamClosedError
        found, self._rest = self._rest[:size], self._rest[size:]
        return found

    async def write(self, data: bytes) -> None:
        self.sent += data

    def cut(self) -> None: ...


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


@cache
def _phone() -> VirtualPhone:
    spec = PhoneSpec(
        name="fuzz",
        profile=next(iter(load_profiles().values())),
        mode=VirtualMode.CANNED,
        seed=0,
        key_file=Path("/nonexistent/adbkey.pub"),
    )
    return VirtualPhone(spec, scratch() / "phones", lambda: None)


def _names_outside() -> list[Path]:
    _phone()
    return sorted(path for path in (*scratch().iterdir(), *(scratch() / "phones").iterdir()))


def _block(text: bytes) -> bytes:
    return f"{len(text):04x}".encode() + text


def _packet(kind: int, data: bytes) -> bytes:
    return bytes([kind]) + len(data).to_bytes(4, "little") + data


def _sync(word: bytes, data: bytes) -> bytes:
    return word + len(data).to_bytes(4, "little") + data


def _message(command: int, payload: bytes) -> bytes:
    message = Message(command=Command(command), first=1, second=1, payload=payload)
    return encode(message, version=VERSION_WITH_CHECKSUM)


_bytes = st.binary(max_size=60)
_path = st.one_of(one_of(HOSTILE), one_of(("/data/local/tmp/x", "/sdcard/a"))).map(
    lambda text: text.encode("utf-8", "surrogatepass")
)
_packets = st.lists(st.builds(_packet, st.integers(0, 6), _bytes), max_size=6).map(b"".join)
_answers = st.lists(st.builds(_sync, one_of(WORDS), _bytes), max_size=5).map(b"".join)
_stat = b"STAT" + (0o100644).to_bytes(4, "little") + (3).to_bytes(4, "little") + b"\0" * 4
_whole_file = _stat + _sync(b"DATA", b"abc") + _sync(b"DONE", b"")
_pushes = st.builds(
    lambda path, mode, part, last: _sync(b"SEND", path + mode) + _sync(b"DATA", part) + last,
    _path, one_of((b",33188", b",41471", b",", b",-1")), _bytes,
    one_of((b"DONE\0\0\0\0", b"DONE\xff\xff\xff\xff", b"", b"QUIT\0\0\0\0")),
)  # fmt: skip
_asks = st.builds(_sync, one_of(WORDS), _path)
_requests = st.lists(st.one_of(_pushes, _asks), max_size=4).map(b"".join)
_messages = st.lists(st.builds(_message, one_of(list(Command)), _bytes), max_size=4).map(b"".join)
_device_line = st.builds(
    "{}{}{} {}".format,
    one_of((*HOSTILE, "emulator-5554", "a b", "192.168.0.2:5555")),
    one_of((" ", "\t", "  ")),
    one_of((*DeviceState, "no permissions; see", "recovery x")),
    one_of(("", "usb:1-2", "model:A transport_id:9", "transport_id:" + "9" * 30, "x:")),
)
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
    Target(device_list, st.one_of(lines(_device_line), mutated((DEVICES,))), name="adb_devices"),
    Target(mdns_services, mutated((SERVICES,)), share=0.5, name="adb_mdns"),
    Target(
        refusal,
        st.one_of(mutated((b"device 'X' not found", b"failed to connect to x")), arbitrary()),
        share=0.5,
        name="adb_refusal",
    ),
    Target(wire_message, st.one_of(_messages, mutated((GREETING,))), may_raise=(TransientError,)),
    Target(stranger, st.one_of(_messages, mutated((GREETING,)))),
    Target(pushed_files, st.one_of(_requests, mutated((_whole_file,), WORDS))),
    Target(public_key, mutated((PUBLIC_KEY,)), share=0.5),
)
