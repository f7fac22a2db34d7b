"""Writes protobuf messages, as real programs do for the readers of fleetrank."""

import struct
from collections.abc import Mapping

_VARINT, _BYTES, _FOUR_BYTES = 0, 2, 5


def encode_floats(values: Mapping[int, float | None]) -> bytes:
    """Fields of type float, by number; `None` is omitted."""
    return b"".join(
        _encoded(number << 3 | _FOUR_BYTES) + struct.pack("<f", value)
        for number, value in values.items()
        if value is not None
    )


def encode_integers(values: Mapping[int, int]) -> bytes:
    """Fields of type int32 or int64 that are not negative, by number."""
    return b"".join(
        _encoded(number << 3 | _VARINT) + _encoded(value) for number, value in values.items()
    )


def encode_messages(parts: Mapping[int, bytes]) -> bytes:
    """Fields that are messages themselves, by number."""
    return b"".join(
        _encoded(number << 3 | _BYTES) + _encoded(len(part)) + part
        for number, part in parts.items()
    )


def _encoded(value: int) -> bytes:
    """A varint."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))
