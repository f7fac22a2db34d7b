"""Commands on the phone: with packets and an exit code (shell v2), or as plain bytes (v1)."""

import asyncio
import errno
import os
import secrets
import signal
import stat
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from fleetrank.device_agents.errors import TransientError
from fleetrank.device_agents.virtual_phone.profile import Fault, PathHider
from fleetrank.device_agents.virtual_phone.virtual_phone import VirtualPhone

# The messages of the adb protocol, and one stream of them: a pipe with adb's flow control.
#
# It has no code for sockets or services.
#
# Source: AOSP packages/modules/adb, `protocol.txt` and `adb.h`; seen from adb 29 and 36.

HEADER_BYTES = 24
VERSION_WITH_CHECKSUM = 0x01000000
VERSION_WITHOUT_CHECKSUM = 0x01000001
"""Since this version, if both sides support it, the checksum is neither set nor checked."""
MAX_PAYLOAD_BYTES = 1024 * 1024
"""The most that either client announces; a longer message means a damaged or hostile stream."""

_HEADER = struct.Struct("<6I")
_MASK = 0xFFFFFFFF


class Command(IntEnum):
    """The first word of a message: four letters, read as a little-endian number."""

    CNXN = 0x4E584E43
    AUTH = 0x48545541
    OPEN = 0x4E45504F
    OKAY = 0x59414B4F
    WRTE = 0x45545257
    CLSE = 0x45534C43


class AuthKind(IntEnum):
    """The first argument of an AUTH message."""

    TOKEN = 1
    SIGNATURE = 2
    PUBLIC_KEY = 3


class ProtocolError(TransientError):
    """The other side does not follow the adb protocol; the connection cannot be used any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The content of the first 24 bytes of a message.

    Attributes:
        checksum: sum of the payload's bytes, or 0 if both sides omit it.
    """

    command: Command
    first: int
    second: int
    payload_bytes: int
    checksum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message; the meaning of the two numbers depends on the command."""

    command: Command
    first: int
    second: int
    payload: bytes = b""


def encode(message: Message, *, version: int) -> bytes:
    """Returns header and payload as bytes for the connection."""
    has_checksum = version < VERSION_WITHOUT_CHECKSUM
    header = _HEADER.pack(
        message.command,
        message.first,
        message.second,
        len(message.payload),
        checksum(message.payload) if has_checksum else 0,
        message.command ^ _MASK,
    )
    return header + message.payload


def decode_header(data: bytes, *, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> Header:
    """Reads 24 bytes.

    Raises:
        ProtocolError: an unknown command, a wrong magic word or a payload above the limit.
    """
    if len(data) != HEADER_BYTES:
        raise _broken(f"a header of {len(data)} bytes")
    number, first, second, size, total, magic = _HEADER.unpack(data)
    if magic != number ^ _MASK:
        raise _broken("a wrong magic word")
    if size > max_payload_bytes:
        raise _broken(f"a payload of {size} bytes")
    try:
        command = Command(number)
    except ValueError as error:
        raise _broken(f"command {number:#x}") from error
    return Header(command=command, first=first, second=second, payload_bytes=size, checksum=total)


def decode_message(header: Header, payload: bytes, *, version: int) -> Message:
    """Combines a header and its payload.

    Raises:
        ProtocolError: the payload has another length, or the checksum that this version requires
            is wrong.
    """
    if len(payload) != header.payload_bytes:
        raise _broken(f"{len(payload)} bytes instead of {header.payload_bytes}")
    # A server that reconnects continues in the version of the last connection, without checksums.
    is_summed = version < VERSION_WITHOUT_CHECKSUM and header.checksum != 0
    if is_summed and header.checksum != checksum(payload):
        raise _broken("a wrong checksum")
    return Message(
        command=header.command, first=header.first, second=header.second, payload=payload
    )


def checksum(payload: bytes) -> int:
    """The protocol's `data_check`: the sum of the bytes, modulo 2**32."""
    return sum(payload) & _MASK


def _broken(what: str) -> ProtocolError:
    return ProtocolError(f"{what} in the adb stream", "close the connection and connect again")


Send = Callable[[Message], Awaitable[None]]
Cut = Callable[[], None]
"""Ends the connection below the stream without a message, like a pulled cable."""

MAX_WAITING_MESSAGES = 4
"""A client that sends without waiting for OKAY violates the protocol; its stream is cut."""


class StreamClosedError(Exception):
    """The client closed the stream, or the connection is lost; used only inside this package."""


class Stream:
    """The stream that one OPEN started.

    After our WRTE we wait for the client's OKAY before the next; a WRTE of the client gets its
    OKAY after the service has read it.
    """

    def __init__(
        self, own_id: int, client_id: int, *, send: Send, cut: Cut, max_payload_bytes: int
    ) -> None:
        self.own_id = own_id
        self.client_id = client_id
        self.cut = cut
        self.closed = asyncio.Event()
        self._send = send
        self._max_payload_bytes = max_payload_bytes
        self._writing = asyncio.Lock()
        self._arrived: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._may_write = asyncio.Event()
        self._buffer = bytearray()

    async def accept(self) -> None:
        """Reports to the client that its OPEN has found a service."""
        self._may_write.set()
        await self._send(Message(command=Command.OKAY, first=self.own_id, second=self.client_id))

    def take(self, payload: bytes) -> None:
        """Keeps a WRTE of the client until the service reads it."""
        if self._arrived.qsize() >= MAX_WAITING_MESSAGES:
            self.end()
        else:
            self._arrived.put_nowait(payload)

    def allow(self) -> None:
        """The client's OKAY: it has received the last message."""
        self._may_write.set()

    def end(self) -> None:
        """The client's CLSE, or the end of the connection: wakes all readers and writers."""
        self.closed.set()
        self._may_write.set()
        self._arrived.put_nowait(None)

    async def read(self) -> bytes:
        """Returns the next data, in pieces of any size; raises `StreamClosedError` at the end."""
        if self._buffer:
            data = bytes(self._buffer)
            self._buffer.clear()
            return data
        payload = await self._arrived.get()
        if payload is None:
            self._arrived.put_nowait(None)  # the next read ends too
            raise StreamClosedError
        await self._send(Message(command=Command.OKAY, first=self.own_id, second=self.client_id))
        return payload

    async def read_exactly(self, size: int) -> bytes:
        """Returns `size` bytes; raises `StreamClosedError` if they do not arrive."""
        while len(self._buffer) < size:
            held = bytes(self._buffer)
            self._buffer.clear()
            self._buffer += held + await self.read()
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    async def write(self, data: bytes) -> None:
        """Sends all data, not mixed with other writes, in messages of the agreed size."""
        async with self._writing:
            for start in range(0, len(data), self._max_payload_bytes):
                await self._write_part(data[start : start + self._max_payload_bytes])

    async def _write_part(self, part: bytes) -> None:
        await self._may_write.wait()
        if self.closed.is_set():
            raise StreamClosedError
        self._may_write.clear()
        await self._send(
            Message(command=Command.WRTE, first=self.own_id, second=self.client_id, payload=part)
        )

    async def drain(self) -> None:
        """Waits until the client has received the last message; closing earlier could lose it."""
        await self._may_write.wait()


CHUNK_BYTES = 32 * 1024
MAX_OUTPUT_BYTES = 256 * 1024 * 1024
"""Limit for one command: more output is an endless loop. `cat` of a big artifact fits."""
DROP_AFTER_S = 0.05
"""Time after the start of a run at which the cable is pulled."""
POLL_S = 0.1
RUN_SIGNS = ("/fleetrank/tools/", "/fleetrank/artifacts/")
"""Both are part of the text of a command that runs a pushed tool on a pushed artifact."""

_HUNG_UP = 129
"""128 plus the number of SIGHUP; its client is gone, and no one reads it."""
_PACKET = struct.Struct("<BI")

Process = asyncio.subprocess.Process


class Packet(IntEnum):
    """Kinds of packets of shell v2. Source: AOSP adb `shell_protocol.h`."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    EXIT = 3
    CLOSE_STDIN = 4
    WINDOW_SIZE = 5


Write = Callable[[Packet, bytes], Awaitable[None]]
Feed = Callable[[Process], Awaitable[None]]


async def serve_packets(phone: VirtualPhone, command: str, stream: Stream) -> None:
    """Shell v2: stdin, stdout, stderr and the exit code, each in packets."""

    async def write(kind: Packet, data: bytes) -> None:
        await stream.write(_PACKET.pack(kind, len(data)) + data)

    async def feed(process: Process) -> None:
        while True:
            kind, size = _PACKET.unpack(await stream.read_exactly(_PACKET.size))
            if size > MAX_PAYLOAD_BYTES:
                raise StreamClosedError  # clients do not send this; it would fill the memory
            data = await stream.read_exactly(size)
            if kind == Packet.STDIN:
                await _write_stdin(process, data)
            elif kind == Packet.CLOSE_STDIN and process.stdin is not None:
                process.stdin.close()

    exit_code = await _run(phone, command, stream, feed=feed, write=write)
    await write(Packet.EXIT, bytes([exit_code]))


async def serve_plain(phone: VirtualPhone, command: str, stream: Stream) -> None:
    """Shell v1 and exec: bytes in, bytes out; standard error is mixed in; no exit code."""

    async def write(kind: Packet, data: bytes) -> None:
        del kind
        await stream.write(data)

    async def feed(process: Process) -> None:
        while True:
            await _write_stdin(process, await stream.read())

    await _run(phone, command, stream, feed=feed, write=write)


async def _run(
    phone: VirtualPhone, command: str, stream: Stream, *, feed: Feed, write: Write
) -> int:
    """Runs one command to its end; afterwards its process group is always gone.

    A process in the background ends with the command, as on a phone without nohup.
    """
    is_run = all(sign in command for sign in RUN_SIGNS)
    if is_run:
        phone.run_begins()
    try:
        return await _run_process(phone, command, stream, feed=feed, write=write)
    finally:
        if is_run:
            phone.run_ends()


async def _run_process(
    phone: VirtualPhone, command: str, stream: Stream, *, feed: Feed, write: Write
) -> int:
    process = await _start(phone, command)
    if all(sign in command for sign in RUN_SIGNS) and phone.take(Fault.DROP_RUN):
        await _drop(process, stream)
    copying = asyncio.gather(
        _copy(phone, process.stdout, Packet.STDOUT, write),
        _copy(phone, process.stderr, Packet.STDERR, write),
    )
    waiting = asyncio.create_task(process.wait())
    closing = asyncio.create_task(stream.closed.wait())
    exiting = asyncio.create_task(_wait_for_exit(process))
    others = [asyncio.create_task(_feed(process, feed)), closing, exiting]
    try:
        await asyncio.wait({waiting, closing, exiting}, return_when=asyncio.FIRST_COMPLETED)
        if closing.done() and phone.has_fault(Fault.HANGUP_ONLY):
            _hang_up(process)
            return _HUNG_UP
        _kill_group(process)
        await copying
        return _exit_code(await waiting)
    finally:
        if not phone.has_fault(Fault.HANGUP_ONLY):
            _kill_group(process)
        copying.cancel()
        for task in others:
            task.cancel()
        await asyncio.gather(waiting, copying, *others, return_exceptions=True)


async def _wait_for_exit(process: Process) -> None:
    """Waits for the end of a command whose background processes hold its pipes.

    `Process.wait` waits for the pipes as well.
    """
    while process.returncode is None:
        await asyncio.sleep(POLL_S)


async def _start(phone: VirtualPhone, command: str) -> Process:
    phone.tell_time()
    # A shell can become its last command; with one more it stays, as the shells of phones do.
    last = "\nexit $?" if phone.has_fault(Fault.HANGUP_ONLY) else ""
    return await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        f"{phone.paths.to_host(command)}{last}".encode("utf-8", errors="surrogateescape"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=phone.environment(),
        cwd=phone.paths.root,
        start_new_session=True,
    )


async def _copy(
    phone: VirtualPhone, source: asyncio.StreamReader | None, kind: Packet, write: Write
) -> None:
    """Forwards output; the folder of the phone is removed from every path."""
    if source is None:
        return
    hider = PathHider(phone.paths.root)
    copied_bytes = 0
    while chunk := await source.read(CHUNK_BYTES):
        copied_bytes += len(chunk)
        if copied_bytes > MAX_OUTPUT_BYTES:
            raise StreamClosedError
        # Read to the end even without a reader: asyncio closes the pipe only then.
        with suppress(StreamClosedError):
            if shown := hider.hide(chunk):
                await write(kind, shown)
    with suppress(StreamClosedError):
        if rest := hider.rest():
            await write(kind, rest)


async def _feed(process: Process, feed: Feed) -> None:
    with suppress(StreamClosedError):
        await feed(process)


async def _write_stdin(process: Process, data: bytes) -> None:
    """Writes to a command, which may have stopped reading."""
    if process.stdin is None or process.stdin.is_closing():
        return
    process.stdin.write(data)
    with suppress(ConnectionError):
        await process.stdin.drain()


async def _drop(process: Process, stream: Stream) -> None:
    """Cuts the connection during a run whose output is not complete."""
    await asyncio.sleep(DROP_AFTER_S)
    _kill_group(process)
    await process.wait()
    stream.cut()
    raise StreamClosedError


def _kill_group(process: Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _hang_up(process: Process) -> None:
    """Ends the shell alone, and closes the pipes that its program may still write to.

    Source: adbd's shell_service.cpp, `kill(pid_, SIGHUP)`.
    """
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGHUP)
    # asyncio has no public way to close the pipes of a process that goes on.
    process._transport.close()  # type: ignore[attr-defined]


def _exit_code(status: int) -> int:
    """The shell's exit code: 128 plus the signal's number if a signal ended the command."""
    return 128 - status if status < 0 else status


def end_programs(phone: VirtualPhone) -> None:
    """Ends programs that a closed connection left: no phone is there for them any more."""
    mark = f"FLEETRANK_PHONE={phone.paths.root}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)


# File transfer to and from the phone: adb's sync protocol in its first form. No profile announces
# the second one, so every client speaks the first.
#
# Source: AOSP adb `SYNC.TXT` and `file_sync_protocol.h`.

MAX_DATA_BYTES = 64 * 1024
"""Limit of one DATA block, from the protocol."""
MAX_FILE_BYTES = 4 * 1024**3
"""Limit of one push, which is kept in memory until it is complete."""
MAX_PATH_BYTES = 1024
DROP_AFTER_BYTES = 32 * 1024
"""Number of bytes after which the cable is pulled in a push; a smaller file is cut at its end."""

_REQUEST = struct.Struct("<4sI")
_STAT = struct.Struct("<4sIII")
_ENTRY = struct.Struct("<4sIIII")

_HOSTILE = ("../../../../escaped", "/tmp/escaped", "a/../../escaped", "..", "new\nline", "$(id)")  # noqa: S108


async def serve_files(phone: VirtualPhone, stream: Stream) -> None:
    """Answers requests until QUIT, or until an unknown request."""
    session = _Session(phone, stream)
    while await session.answer():
        pass


class _Session:
    def __init__(self, phone: VirtualPhone, stream: Stream) -> None:
        self._phone = phone
        self._stream = stream

    async def answer(self) -> bool:
        """Answers one request; `False` ends the session."""
        word, size = _REQUEST.unpack(await self._stream.read_exactly(_REQUEST.size))
        if word == b"QUIT" or size > MAX_PATH_BYTES:
            return False
        raw = await self._stream.read_exactly(size)
        path = raw.decode("utf-8", errors="surrogateescape")
        match word:
            case b"STAT":
                await self._stat(path)
            case b"LIST":
                await self._list(path)
            case b"SEND":
                path, _, mode = path.rpartition(",")
                return await self._receive_file(path, mode_of(mode))
            case b"RECV":
                await self._send_file(path)
            case _:
                await self._fail(f"unknown command {word!r}")
                return False
        return True

    async def _stat(self, path: str) -> None:
        file = self._phone.paths.file(path)
        facts = (0, 0, 0)
        if file is not None:
            with suppress(OSError):
                facts = _facts(file.lstat())
        await self._stream.write(_STAT.pack(b"STAT", *facts))

    async def _list(self, path: str) -> None:
        for name, found in self._entries(path):
            raw = name.encode("utf-8", errors="surrogateescape")
            await self._stream.write(_ENTRY.pack(b"DENT", *_facts(found), len(raw)) + raw)
        await self._stream.write(_ENTRY.pack(b"DONE", 0, 0, 0, 0))

    def _entries(self, path: str) -> Iterator[tuple[str, os.stat_result]]:
        folder = self._phone.paths.file(path)
        if folder is None or not folder.is_dir():
            return
        with os.scandir(folder) as entries:
            for entry in entries:
                yield entry.name, entry.stat(follow_symlinks=False)
        if self._phone.has_fault(Fault.HOSTILE_NAMES):
            for name in _HOSTILE:
                yield name, Path(__file__).stat()

    async def _send_file(self, path: str) -> bool:
        file = self._phone.paths.file(path)
        if file is None:
            return await self._fail(f"open failed: {os.strerror(errno.ENOENT)}")
        try:
            data = await asyncio.to_thread(file.read_bytes)
        except OSError as error:
            return await self._fail(f"open failed: {error.strerror}")
        for start in range(0, len(data), MAX_DATA_BYTES):
            part = data[start : start + MAX_DATA_BYTES]
            await self._stream.write(_REQUEST.pack(b"DATA", len(part)) + part)
        await self._stream.write(_REQUEST.pack(b"DONE", 0))
        return True

    async def _receive_file(self, path: str, mode: int) -> bool:
        """Receives a file or link through a temporary file; after an error it reads the rest."""
        file = self._phone.paths.file(path)
        error = None if file is not None else os.strerror(errno.EACCES)
        content = bytearray()
        while True:
            word, size = _REQUEST.unpack(await self._stream.read_exactly(_REQUEST.size))
            if word == b"DONE":
                break
            if word != b"DATA" or size > MAX_DATA_BYTES or len(content) > MAX_FILE_BYTES:
                await self._fail(f"unexpected {word!r} of {size} bytes")
                return False
            content += await self._stream.read_exactly(size)
            self._drop_in_the_middle(len(content), DROP_AFTER_BYTES)
        self._drop_in_the_middle(DROP_AFTER_BYTES, DROP_AFTER_BYTES)
        if file is None or error is not None:
            return await self._fail(error or "")
        if self._phone.has_fault(Fault.STORAGE_FULL):
            return await self._fail(f"write failed: {os.strerror(errno.ENOSPC)}")
        try:
            await asyncio.to_thread(_store, file, bytes(content), mode, size)
        except OSError as failed:
            return await self._fail(f"couldn't create file: {failed.strerror}")
        await self._stream.write(_REQUEST.pack(b"OKAY", 0))
        return True

    def _drop_in_the_middle(self, received_bytes: int, limit_bytes: int) -> None:
        if received_bytes >= limit_bytes and self._phone.take(Fault.DROP_PUSH):
            self._stream.cut()
            raise StreamClosedError

    async def _fail(self, message: str) -> bool:
        raw = message.encode()
        await self._stream.write(_REQUEST.pack(b"FAIL", len(raw)) + raw)
        return True


def mode_of(text: str) -> int:
    """The mode that a client sends in decimal; an invalid mode becomes that of a plain file."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 6 else 0o644


def _store(file: Path, content: bytes, mode: int, modified_s: int) -> None:
    """Writes a pushed file with the mode and the time from the client.

    Raises:
        OSError: the host's error; also for a link, because fleetrank never pushes one.
    """
    if stat.S_ISLNK(mode):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f".{secrets.token_hex(8)}.part")
    try:
        aside.write_bytes(content)
        aside.chmod(mode & 0o777 | 0o600)
        os.utime(aside, (modified_s, modified_s))
        aside.replace(file)
    finally:
        aside.unlink(missing_ok=True)


def _facts(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_mode, min(found.st_size, 0xFFFFFFFF), int(found.st_mtime) & 0xFFFFFFFF
