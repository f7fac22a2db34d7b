"""The messages of the adb protocol, as bytes.

Source: AOSP packages/modules/adb, `protocol.txt` and `adb.h`; seen from adb 29 and 36.
"""

import struct
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
