"""Damaged and doubled archives, from a seed: what two readers might read in two ways."""

import random
import struct
from collections.abc import Callable

Mutation = Callable[[random.Random, bytes], bytes]

_SIGNS = (b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07", b"PK\x07\x08")


def mutated(rng: random.Random, data: bytes) -> bytes:
    """One to three changes of an archive."""
    for _ in range(rng.randint(1, 3)):
        data = rng.choice(_MUTATIONS)(rng, data)
    return data


def _flip(rng: random.Random, data: bytes) -> bytes:
    place = rng.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]


def _flip_header(rng: random.Random, data: bytes) -> bytes:
    """A bit of the 60 bytes that begin with a signature."""
    place = min(_header(rng, data) + rng.randrange(60), len(data) - 1)
    return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]


def _other_number(rng: random.Random, data: bytes) -> bytes:
    """A size, offset or count of a header becomes one that may lie elsewhere in the file."""
    size = rng.choice((2, 4, 8))
    place = min(_header(rng, data) + 4 + rng.randrange(50), len(data) - size)
    values = (0, 1, 0xFFFF, 0xFFFFFFFF, len(data), _header(rng, data), rng.randrange(len(data)))
    number = rng.choice(values) & (1 << 8 * size) - 1
    new = number.to_bytes(size, "little")
    return data[:place] + new + data[place + size :]


def _double_member(rng: random.Random, data: bytes) -> bytes:
    """A member, or its place in the directory, stands twice."""
    start = _header(rng, data)
    following = data.find(b"PK", start + 4)
    piece = data[start : following if following > 0 else len(data)]
    place = _header(rng, data)
    return data[:place] + piece + data[place:]


def _without_piece(rng: random.Random, data: bytes) -> bytes:
    start = _header(rng, data) if rng.random() < 0.5 else rng.randrange(len(data))
    return data[:start] + data[start + rng.randint(1, 80) :] or data


def _more_bytes(rng: random.Random, data: bytes) -> bytes:
    place = rng.choice((0, len(data), _header(rng, data), rng.randrange(len(data))))
    return data[:place] + rng.randbytes(rng.randint(1, 100)) + data[place:]


def _two_archives(rng: random.Random, data: bytes) -> bytes:
    """Another archive before it or after it, changed or not."""
    other = rng.choice((_flip_header, _flip, _other_number))(rng, data)
    return other + data if rng.random() < 0.5 else data + other


def _hidden_end(rng: random.Random, data: bytes) -> bytes:
    """A second end record, in a comment or after one."""
    end = data[data.rfind(b"PK\x05\x06") :]
    if len(end) < 22:
        return data + end
    with_comment = end[:20] + struct.pack("<H", len(end)) + end
    return data[: -len(end)] + rng.choice((with_comment, end + end, with_comment[:-1]))


def _other_case(rng: random.Random, data: bytes) -> bytes:
    """A name in other letters, or with a byte that readers take differently."""
    word = rng.choice((b"model", b"weight_0", b"byteorder", b"data/", b"models/"))
    new = rng.choice((word.upper(), word[:-1] + b"\0", word[:-1] + b"\\", b"../" + word[3:]))
    places = data.count(word)
    return data.replace(word, new[: len(word)], rng.randint(1, max(places, 1)))


def _header(rng: random.Random, data: bytes) -> int:
    """Where one of the signatures stands."""
    sign, place = rng.choice(_SIGNS), -1
    for _ in range(rng.randint(1, 1 + data.count(sign))):
        found = data.find(sign, place + 1)
        place = found if found >= 0 else place
    return max(place, 0)


_MUTATIONS: tuple[Mutation, ...] = (
    _flip, _flip_header, _flip_header, _other_number, _other_number, _double_member,
    _without_piece, _more_bytes, _two_archives, _hidden_end, _other_case,
)  # fmt: skip
