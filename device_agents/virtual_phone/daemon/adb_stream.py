"""The messages of the adb protocol, and one stream of them: a pipe with adb's flow control.

It has no code for sockets or services.

Source: AOSP packages/modules/adb, `protocol.txt` and `adb.h`; seen from adb 29 and 36.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import IntEnum

from fleetrank.device_agents.errors import TransientError

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
