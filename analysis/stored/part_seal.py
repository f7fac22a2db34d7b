"""The checksum of a whole Parquet file, which stands in its footer.

Parquet's own checksums cover pages; a flipped bit in the footer (a statistic, an offset, a name)
passes them. The footer has an entry whose value is as long as a SHA-256: it is filled in when the
rest of the file is written, and counts as zeros in the sum. Every reader of Parquet passes over it.
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
"""The length of the footer, and `PAR1`."""
_BLOCK_BYTES = 1 << 20
_KNOWN_FILES = 100_000


class BrokenSealError(ValueError):
    """The content of a file is not what was written."""


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
        BrokenSealError: it has one that its content does not match.
        OSError: it cannot be read.
    """
    found = path.stat()
    return _is_sealed(path, found.st_size, found.st_mtime_ns, found.st_ino)


def require_seal(path: Path) -> None:
    """As `is_sealed`, of a file that has to have a checksum."""
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
            raise BrokenSealError(f"{path} is not what was written")
    return True


def _seal_at(file: BinaryIO) -> int | None:
    """Where the sum begins; `None` in a file that never had one.

    Raises:
        BrokenSealError: its name or its value is damaged, as one is there without the other.
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
    """Of the whole file, with zeros where the sum is."""
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
