"""The checksum of a whole Parquet file; it is stored in the file's footer.

Parquet's own checksums cover pages only; they do not detect a flipped bit in the footer (a
statistic, an offset, a name). The footer has an entry with the length of a SHA-256. It is filled in
after the rest of the file is written, and counts as zeros in the sum. Parquet readers ignore it.
"""

import hashlib
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

SEAL_KEY = "fleetrank.checksum"
_MARK = "fleetrank-sha256:"
_NO_SUM = b"0" * 64
OPEN_SEAL = _MARK + _NO_SUM.decode()
"""The entry's value while the file is being written."""
_SEAL = re.compile(_MARK.encode() + rb"([0-9a-f]{64})")
_TAIL_BYTES = 8
"""Bytes of the footer's length and of `PAR1`."""
_BLOCK_BYTES = 1 << 20
_KNOWN_FILES = 100_000


class BrokenSealError(ValueError):
    """The content of a file does not match its checksum."""


def close_seal(file: BinaryIO) -> None:
    """Fills in the checksum of a file whose footer has an entry `SEAL_KEY` of `OPEN_SEAL`."""
    at = _seal_at(file)
    if at is None:
        raise ValueError("the file has no place for its checksum")
    digest = _digest(file, at)
    file.seek(at)
    file.write(digest)
    file.seek(0, 2)


def is_sealed(path: Path) -> bool:
    """Whether a file has a checksum; it is computed once per process and state of the file.

    Raises:
        BrokenSealError: the file does not match its checksum.
        OSError: it cannot be read.
    """
    found = path.stat()
    return _is_sealed(path, found.st_size, found.st_mtime_ns, found.st_ino)


def require_seal(path: Path) -> None:
    """Checks the checksum of a file that must have one."""
    if not is_sealed(path):
        raise BrokenSealError(f"{path} has no checksum")


@lru_cache(maxsize=_KNOWN_FILES)
def _is_sealed(path: Path, _size: int, _mtime_ns: int, _inode: int) -> bool:
    with path.open("rb") as file:
        at = _seal_at(file)
        if at is None:
            return False
        digest = _digest(file, at)
        file.seek(at)
        if file.read(len(digest)) != digest:
            raise BrokenSealError(f"{path} does not match its checksum")
    return True


def _seal_at(file: BinaryIO) -> int | None:
    """The offset of the checksum; `None` in a file that never had one.

    Raises:
        BrokenSealError: its name or its value is damaged: only one of them was found.
    """
    size = file.seek(0, 2)
    if size < _TAIL_BYTES:
        return None
    file.seek(size - _TAIL_BYTES)
    length = int.from_bytes(file.read(4), "little")
    start = size - _TAIL_BYTES - length
    if start < 0:
        raise BrokenSealError("its footer cannot be that long")
    file.seek(start)
    footer = file.read(size - start)
    name = footer.rfind(SEAL_KEY.encode())
    sums = list(_SEAL.finditer(footer))
    if name < 0 and not sums:
        return None
    if name < 0 or not sums:
        raise BrokenSealError("the checksum itself is damaged")
    return start + sums[-1].start(1)


def _digest(file: BinaryIO, at: int) -> bytes:
    """The SHA-256 of the whole file, with zeros in place of the checksum."""
    file.seek(0)
    digest = hashlib.sha256()
    for block in _blocks(file, at):
        digest.update(block)
    digest.update(_NO_SUM)
    file.seek(at + len(_NO_SUM))
    for block in _blocks(file, None):
        digest.update(block)
    return digest.hexdigest().encode()


def _blocks(file: BinaryIO, n_bytes: int | None) -> Iterator[bytes]:
    left = n_bytes
    while block := file.read(_BLOCK_BYTES if left is None else min(left, _BLOCK_BYTES)):
        yield block
        left = None if left is None else left - len(block)
