"""Opens files that may be hostile: a name can refer to a device, a pipe or itself."""

import errno
import hashlib
import os
import stat
from io import BufferedReader
from pathlib import Path

from fleetrank.foundation.errors import BadFileError, MissingFileError

MAX_TYPED_BYTES = 1_000_000
"""A typed file is far smaller; a larger file is a mistake, or intended to fill the memory."""
MAX_RECORD_BYTES = 64 << 20
"""The record of a sweep lists its platforms and skipped cells: megabytes for a large fleet."""

_CHUNK_BYTES = 1 << 20
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


class IrregularFileError(OSError):
    """The file is not regular; `strerror` says what it is."""


def open_regular(path: Path) -> BufferedReader:
    """Opens a regular file, or a link to one, for reading; it never blocks.

    Raises:
        IrregularFileError: it is a device, a pipe or something else; or the name is not valid.
        OSError: the same as `open`.
    """
    # The check is before opening, because opening some devices has side effects.
    check_regular(path)
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    file = os.fdopen(os.open(path, flags), "rb")
    try:
        # The name may refer to another file by now.
        _refuse_irregular(path, os.fstat(file.fileno()).st_mode)
    except OSError:
        file.close()
        raise
    return file


def check_regular(path: Path) -> None:
    """Checks a file that a library will open. Raises the same errors as `open_regular`."""
    try:
        mode = path.stat().st_mode
    except ValueError as error:
        raise _no_name(path) from error
    _refuse_irregular(path, mode)


def file_sha256(path: Path) -> str:
    """SHA-256 of a regular file of any size, in hexadecimal.

    Raises:
        IrregularFileError: also if the file has more bytes than the system reports; some files in
            `/proc` never end.
        OSError: the same as `open_regular`.
    """
    digest = hashlib.sha256()
    with open_regular(path) as file:
        left = os.fstat(file.fileno()).st_size
        while chunk := file.read(_CHUNK_BYTES):
            left -= len(chunk)
            if left < 0:
                raise IrregularFileError(errno.EINVAL, "it grows while it is read", str(path))
            digest.update(chunk)
    return digest.hexdigest()


def read_small_bytes(path: Path, max_bytes: int) -> bytes:
    """Reads a regular file of limited size.

    Raises:
        MissingFileError: the file does not exist.
        BadFileError: it cannot be read, is not a regular file, or is larger.
    """
    try:
        with open_regular(path) as file:
            # Read one byte more than the limit, because the file may grow meanwhile.
            content = file.read(max_bytes + 1)
    except FileNotFoundError as error:
        raise MissingFileError(f"the file {path} does not exist", "check the path") from error
    except OSError as error:
        raise BadFileError(
            f"{path} cannot be read: {error.strerror or error}", "give the path of a regular file"
        ) from error
    if len(content) > max_bytes:
        raise BadFileError(f"{path} is larger than {max_bytes:,} bytes", "give a smaller file")
    return content


def read_small_text(path: Path, max_bytes: int = MAX_TYPED_BYTES) -> str:
    """Reads the text of a small file in UTF-8, without a byte order mark.

    Raises:
        MissingFileError: the file does not exist.
        BadFileError: the same as `read_small_bytes`, or it is not UTF-8.
    """
    content = read_small_bytes(path, max_bytes)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadFileError(
            f"{path} cannot be read: byte 0x{content[error.start]:02x} in line {line} is not UTF-8",
            "save the file as text in UTF-8",
        ) from error


def resolved(path: Path) -> Path:
    """The absolute path without links; the file need not exist.

    Raises:
        OSError: the name is not valid, or a link points to itself.
    """
    try:
        return path.resolve()
    except ValueError as error:
        raise _no_name(path) from error
    except RuntimeError as error:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from error


def _no_name(path: Path) -> IrregularFileError:
    return IrregularFileError(errno.EINVAL, "no file can have that name", str(path))


def _refuse_irregular(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise IrregularFileError(errno.EINVAL, f"it is {kind}, not a regular file", str(path))
