"""Encodes fields of a protobuf message by number; the library itself loads too slowly.

Source: protobuf.dev/programming-guides/encoding.
"""

import struct
from collections.abc import Mapping

_VARINT, _LENGTH, _FLOAT = 0, 2, 5


def encode_floats(values: Mapping[int, float | None]) -> bytes:
    """Fields of type float, by number; `None` is omitted."""
    return b"".join(
        _tag(number, _FLOAT) + struct.pack("<f", value)
        for number, value in values.items()
        if value is not None
    )


def encode_integers(values: Mapping[int, int]) -> bytes:
    """Fields of type int32 or int64 that are not negative, by number."""
    return b"".join(_tag(number, _VARINT) + _varint(value) for number, value in values.items())


def encode_messages(parts: Mapping[int, bytes]) -> bytes:
    """Fields that are messages themselves, by number."""
    return b"".join(
        _tag(number, _LENGTH) + _varint(len(part)) + part for number, part in parts.items()
    )


def _tag(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
