"""Opens files that may be hostile: a name can refer to a device, a pipe or itself."""

import codecs
import contextlib
import errno
import hashlib
import logging
import os
import stat
from io import BufferedReader
from pathlib import Path

from fleetrank.foundation.errors import BadFileError, MissingFileError

_log = logging.getLogger(__name__)
MAX_TYPED_BYTES = 1_000_000
"""A typed file is far smaller; a larger file is a mistake, or intended to fill the memory."""
MAX_RECORD_BYTES = 64 << 20
"""The record of a sweep lists its platforms and skipped cells: megabytes for a large fleet."""
_CHUNK_BYTES = 1 << 20
_LONG_BYTES = 8 << 30
"""About ten seconds: longer without output looks like a hang."""
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
    return os.fdopen(open_checked(path, os.O_RDONLY), "rb")


def open_checked(path: Path, flags: int, mode: int = 0o600) -> int:
    """The descriptor of a regular file, or of a new one with `O_CREAT`; raises as `open_regular`.

    Children do not inherit it.
    """
    # The check is before opening, because opening some devices has side effects.
    with contextlib.suppress(*[FileNotFoundError] if flags & os.O_CREAT else []):
        check_regular(path)
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY, mode)
    try:
        # The name may refer to another file by now.
        _refuse_irregular(path, os.fstat(descriptor).st_mode)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def check_regular(path: Path) -> None:
    """Checks a file that a library will open. Raises the same errors as `open_regular`."""
    try:
        mode = path.stat().st_mode
    except ValueError as error:
        raise _no_name(path) from error
    _refuse_irregular(path, mode)


def file_sha256(path: Path) -> str:
    """SHA-256 of a regular file of any size, in hexadecimal; a large one is named before.

    Raises:
        IrregularFileError: also if the file has more bytes than the system reports; some files in
            `/proc` never end.
        OSError: the same as `open_regular`.
    """
    with open_regular(path) as file:
        found = os.fstat(file.fileno())
        if found.st_size > _LONG_BYTES:
            is_sparse = found.st_blocks * 512 < found.st_size / 2
            holes = ", mostly holes, as of a download that did not end" if is_sparse else ""
            _log.warning("%s is read as a whole: %.0f GB%s", path, found.st_size / 1e9, holes)
        return sha256_of(file)


def sha256_of(file: BufferedReader) -> str:
    """The same of an open file, from its beginning."""
    digest = hashlib.sha256()
    left = os.fstat(file.fileno()).st_size
    while chunk := file.read(_CHUNK_BYTES):
        left -= len(chunk)
        if left < 0:
            raise IrregularFileError(errno.EINVAL, "it grows while it is read", str(file.name))
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
    """Reads the text of a small file, as `decoded` does.

    Raises:
        MissingFileError: the file does not exist.
        BadFileError: the same as `read_small_bytes`, or it is not text.
    """
    return decoded(read_small_bytes(path, max_bytes), str(path))


def decoded(content: bytes, where: str, errors: str = "strict") -> str:
    """The text of a file in UTF-8, or as its byte order mark says; the mark is left out.

    Args:
        content: of a file of the user. PowerShell's `>` writes UTF-16.
        where: its name in messages.
        errors: `replace` for a log, in which single bytes may be damaged.

    Raises:
        BadFileError: it is not in that encoding.
    """
    is_wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return content.decode("utf-16" if is_wide else "utf-8-sig", errors)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadFileError(
            f"{where} cannot be read: byte 0x{content[error.start]:02x} in line {line} is not "
            f"UTF-{16 if is_wide else 8}",
            "save the file as text in UTF-8",
        ) from error


def resolved(path: Path) -> Path:
    """The absolute path without links; the file need not exist.

    Raises:
        OSError: the name is not valid, or a link points to itself.
    """
    # Not `Path.resolve`: of a link to itself, Python 3.11 and 3.13 make different things.
    try:
        found = Path(os.path.realpath(path))
        found.stat()
    except ValueError as error:
        raise _no_name(path) from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise
    return found


def _no_name(path: Path) -> IrregularFileError:
    return IrregularFileError(errno.EINVAL, "no file can have that name", str(path))


def _refuse_irregular(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise IrregularFileError(errno.EINVAL, f"it is {kind}, not a regular file", str(path))
