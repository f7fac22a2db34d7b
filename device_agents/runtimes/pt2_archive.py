"""Reads an archive as PyTorch writes it, so that only one interpretation exists, and rewrites it.

Python's zipfile and PyTorch's reader (miniz) find members by different rules, so a file can contain
different members for each of them. `check_layout` rejects those that the two could read in
different ways; even so, only what `add_member` writes, the checked content, is ever loaded.

Source: PKWARE's APPNOTE 6.3.10; PyTorch 2.13, caffe2/serialize/inline_container.cc.
"""

import os
import shutil
import struct
import zipfile
from typing import IO, BinaryIO

ALIGNMENT = 64
"""Every payload starts at a multiple of this, as in PyTorch's own files."""
MAX_DIRECTORY_BYTES = 16 * 1024 * 1024
"""Limit of the central directory: about 150,000 members; a large network has 1,000."""
_CHUNK_BYTES = 1024 * 1024
"""Weights are copied in pieces, so the worker's memory does not grow before it loads them."""
_LARGE_BYTES = 1 << 30
"""Since this size, a member's sizes are written in 64 bits."""
_PADDING_ID = 0x4246
"""Id of the extra field with which PyTorch pads to the next multiple ("FB")."""
_END = struct.Struct("<4s4H2LH")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR_64 = struct.Struct("<4sLQL")
_LOCAL = struct.Struct("<4s5H3L2H")
_SIZES_FOLLOW = 0x8
_KNOWN_FLAGS = _SIZES_FOLLOW | 0x800
"""The second flag says that names are UTF-8; all others (encryption, patches) are rejected."""
_IS_FOLDER = 0x10
"""A DOS attribute of a member."""
_CENTRAL_BYTES = 46


def check_layout(file: BinaryIO) -> None:
    """Rejects an archive unless its members, in order, fill it from the first to the last byte.

    Raises:
        BadZipFile: it has bytes that belong to no member, two directories, members that overlap,
            are compressed or encrypted, or headers that contradict each other.
    """
    start, size, count = _check_end(file)
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        used = sum(
            _CENTRAL_BYTES + len(each.orig_filename.encode()) + len(each.extra) for each in members
        )
        if archive.start_dir != start or used != size or len(members) != count:
            raise zipfile.BadZipFile("its directory does not match the position in its end record")
        starts = [*(each.header_offset for each in members[1:]), start]
        place = 0
        for member, following in zip(members, starts, strict=True):
            if member.header_offset != place:
                raise zipfile.BadZipFile(f"{member.filename!r} does not follow the previous member")
            _check_member(file, member, following)
            place = following


def add_member(archive: zipfile.ZipFile, name: str, source: IO[bytes], size: int) -> None:
    """Appends one member, uncompressed; its payload is aligned as PyTorch aligns it.

    Args:
        archive: written to a seekable file.
        name: ASCII.
        source: read to its end.
        size: number of bytes in `source`.
    """
    info = zipfile.ZipInfo(name)
    info.file_size = size
    is_large = size > _LARGE_BYTES
    head = _LOCAL.size + len(name) + (20 if is_large else 0) + 4
    padding = -(archive.start_dir + head) % ALIGNMENT
    info.extra = struct.pack("<2H", _PADDING_ID, padding) + b"Z" * padding
    with archive.open(info, "w", force_zip64=is_large) as target:
        shutil.copyfileobj(source, target, _CHUNK_BYTES)
    info.extra = b""  # the directory needs no padding


def _check_end(file: BinaryIO) -> tuple[int, int, int]:
    """Start and size of the only directory, and the number of members it lists."""
    length = file.seek(0, os.SEEK_END)
    place = length - _END.size
    sign, disk, first, here, count, size, start, comment = _END.unpack(_at(file, place, _END.size))
    if sign != b"PK\x05\x06" or (disk, first, comment) != (0, 0, 0) or here != count:
        raise zipfile.BadZipFile("it does not end with an end record")
    before = place - _LOCATOR_64.size
    if before >= 0 and _at(file, before, 4) == b"PK\x06\x07":
        place = before - _END_64.size
        found = _check_end_64(file, place)
        for short, long, limit in zip(
            (count, size, start), found, (0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF), strict=True
        ):
            if short not in (long, limit):
                raise zipfile.BadZipFile("its two end records contradict each other")
        count, size, start = found
    if start + size != place:
        raise zipfile.BadZipFile("its directory does not end where its end record starts")
    if size > MAX_DIRECTORY_BYTES:
        raise zipfile.BadZipFile(f"its directory has {size} bytes")
    return start, size, count


def _check_end_64(file: BinaryIO, place: int) -> tuple[int, int, int]:
    """Members, size and start, from the 64-bit end record at this place."""
    locator = _LOCATOR_64.unpack(_at(file, place + _END_64.size, _LOCATOR_64.size))
    record = _END_64.unpack(_at(file, place, _END_64.size))
    sign, length, _made, _needed, disk, first, here, count, size, start = record
    is_known = sign == b"PK\x06\x06" and length == _END_64.size - 12
    if not is_known or locator[1:] != (0, place, 1) or (disk, first) != (0, 0) or here != count:
        raise zipfile.BadZipFile("its 64-bit end record is missing or invalid")
    return count, size, start


def _check_member(file: BinaryIO, member: zipfile.ZipInfo, following: int) -> None:
    """Compares a member's own header with the directory; its bytes end where the next begins."""
    name = member.orig_filename
    if not name.isascii() or name != member.filename or member.comment:
        raise zipfile.BadZipFile(f"{name!r} has a name or comment that readers parse differently")
    if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & ~_KNOWN_FLAGS:
        raise zipfile.BadZipFile(f"{name!r} is compressed or encrypted, which PyTorch does not do")
    if member.external_attr & _IS_FOLDER or member.volume != 0:
        # PyTorch's reader does not fill the memory of such a member.
        raise zipfile.BadZipFile(f"{name!r} claims to be a folder, or on another disk")
    if member.file_size != member.compress_size:
        raise zipfile.BadZipFile(f"{name!r} has two different sizes")
    head = _LOCAL.unpack(_at(file, member.header_offset, _LOCAL.size))
    sign, _needed, flags, method, _time, _date, *sizes, name_bytes, extra_bytes = head
    begin = member.header_offset + _LOCAL.size
    own_name = _at(file, begin, name_bytes)
    expected = (b"PK\x03\x04", member.flag_bits, member.compress_type, name.encode())
    if (sign, flags, method, own_name) != expected:
        raise zipfile.BadZipFile(f"{name!r} contradicts the directory")
    for own, listed in zip(sizes, (member.CRC, member.file_size, member.file_size), strict=True):
        # PyTorch leaves zeros here and writes the sizes after the payload.
        if own not in (0, 0xFFFFFFFF, listed):
            raise zipfile.BadZipFile(f"{name!r} has other sizes than the directory says")
    end = begin + name_bytes + extra_bytes + member.file_size
    tails = (16, 24) if flags & _SIZES_FOLLOW else (0,)
    if following - end not in tails:
        raise zipfile.BadZipFile(f"{name!r} does not end where the next member begins")


def _at(file: BinaryIO, place: int, size: int) -> bytes:
    if place < 0:
        raise zipfile.BadZipFile("it is too short")
    file.seek(place)
    data = file.read(size)
    if len(data) < size:
        raise zipfile.BadZipFile("it is too short")
    return data
