"""Writes files so that a reader, a crash or a full disk never leaves a partial file.

This module decides which system errors concern storage, with their messages and remedies.
"""

import codecs
import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from itertools import count
from pathlib import Path
from typing import BinaryIO

from fleetrank.foundation.errors import BadFileError, FleetError, MissingFileError

FREE_SPACE = (
    "free some space (`fleetrank models export` with `max_size=2GB` bounds the artifact cache)"
)
RUN_AGAIN = "then run the command again: stored data is kept"
_FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota of its user is used up",
}
_TOO_LARGE = "it would exceed the file size limit of this process"
_DEVICES = Path("/dev")
_FORBIDDEN = {errno.EROFS, errno.EACCES, errno.EPERM}
_LOST = {errno.ESTALE, errno.EIO, errno.ENODEV, errno.ENXIO, errno.ENOTCONN}
"""The medium, or the server of a mounted folder, has become unavailable."""

_log = logging.getLogger(__name__)


class StorageError(FleetError):
    """A file cannot be written, for a reason that a person can remove; the old file is kept."""


class NoRoomError(StorageError):
    """Not enough space: the disk is full, or a quota or a limit on the file size is reached."""


def is_about_storage(error: BaseException) -> bool:
    """Whether the disk, a limit, or permissions are the reason, not a defect of the program."""
    if not isinstance(error, OSError):
        return False
    return error.errno in {*_FULL, errno.EFBIG, *_FORBIDDEN, *_LOST}


def is_no_room(error: BaseException) -> bool:
    """Whether more space would have let it succeed."""
    return isinstance(error, OSError) and error.errno in {*_FULL, errno.EFBIG}


def storage_error(path: Path, error: OSError) -> StorageError:
    """The error that says what could not be written, and what to do about it."""
    if error.errno == errno.EFBIG:
        remedy = f"raise the limit (`ulimit -f`), {RUN_AGAIN}"
        return NoRoomError(f"{path} cannot be written: {_TOO_LARGE}", remedy)
    if error.errno in _FULL:
        remedy = f"{FREE_SPACE}, {RUN_AGAIN}"
        return NoRoomError(f"{path} cannot be written: {_FULL[error.errno]}", remedy)
    remedy = "check that its folder exists and is writable"
    if error.errno in _FORBIDDEN:
        remedy = "get the permission (owner, mode, read-only mount), or write to another folder"
    elif error.errno in _LOST:
        remedy = "check the disk, or the server that the folder is mounted from"
    return StorageError(f"{path} cannot be written: {error.strerror or error}", remedy)


def cache_folder() -> Path:
    """`fleetrank` in the user's cache folder, as defined by the XDG base directories."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "fleetrank"


def make_folder(folder: Path) -> None:
    """Creates a folder and its parents if they are missing.

    Raises:
        StorageError: it cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(folder, error) from error


def replace_file(path: Path, content: bytes, *, is_synced: bool = False) -> None:
    """Writes a temporary file and renames it into place; the old file stays until then.

    A link at `path` is replaced and never followed. The folder must exist. If this function
    created it, a folder that was moved away would come back empty.

    Args:
        path: the file.
        content: the whole content.
        is_synced: content and name also survive a power cut.

    Raises:
        StorageError: it cannot be written; the old file is unchanged.
    """
    replace_file_with(path, lambda file: file.write(content), is_synced=is_synced)


def replace_file_with(
    path: Path, write: Callable[[BinaryIO], object], *, is_synced: bool = False
) -> None:
    """Like `replace_file`, for content that is not completely in memory.

    Args:
        path: the file.
        write: writes all content into an open file, which it may read and seek.
        is_synced: the same as `replace_file`.

    Raises:
        StorageError: the same as `replace_file`.
    """
    with written_aside(path, is_synced=is_synced) as aside, aside.open("x+b") as file:
        write(file)


@contextlib.contextmanager
def written_aside(path: Path, *, is_synced: bool = False) -> Iterator[Path]:
    """Yields a temporary name for the block to write; that file then replaces `path`.

    If the block does not finish, nothing changes. Raises the same errors as `replace_file`.
    """
    _refuse_special(path)
    # The leading dot hides it from every glob that a reader uses. Threads share the process id.
    aside = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        yield aside
        if is_synced:
            sync_file(aside)
        aside.replace(path)
        if is_synced:
            sync_folder(path.parent)
    except OSError as error:
        raise storage_error(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()


def _refuse_special(path: Path) -> None:
    """Refuses devices, pipes, sockets and the links in /dev: root's rename would replace them."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return  # it is new, or writing it fails
    is_file = stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)
    if not is_file or path.parent == _DEVICES:
        raise StorageError(
            f"{path} cannot be written: it is not a regular file", "give the path of a regular file"
        )


def move_file(source: Path, target: Path) -> None:
    """Moves a file to a place where readers see the old file or all of the new one.

    It is renamed, or copied and removed if the target is on another file system. Content and name
    then survive a power cut.

    Raises:
        StorageError: it cannot be moved; the old file at `target` is unchanged.
    """
    import shutil  # not earlier: the measuring worker imports this module and never needs it

    with written_aside(target, is_synced=True) as aside:
        shutil.move(source, aside)


def sync_file(path: Path) -> None:
    """Makes a file's content survive a power cut."""
    _sync(open_checked(path, os.O_RDONLY))


def sync_folder(folder: Path) -> None:
    """Makes renames and new names in a folder survive a power cut."""
    _sync(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))


def _sync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Opens files that may be hostile: a name can refer to a device, a pipe or itself.

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


# Folders for temporary files; one that a killed process left is removed by the next process.
#
# Each folder is locked as long as its process lives, so an abandoned one has no lock.

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class LockedFolder:
    """A folder of this process.

    Attributes:
        path: its mode is 0700.
        lock: descriptor that keeps it locked; after closing, another process may remove the folder.
    """

    path: Path
    lock: int


@contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """Makes a folder of `make_folder` for the block, and removes it afterwards.

    Raises:
        OSError: the folder cannot be made.
    """
    made = make_temporary_folder(purpose, Path(tempfile.gettempdir()))
    try:
        yield made.path
    finally:
        try:
            remove_tree(made.path)
        except OSError as error:
            _log.warning("cannot remove %s: %s", made.path, error.strerror)
        os.close(made.lock)


def make_temporary_folder(purpose: str, place: Path) -> LockedFolder:
    """Removes abandoned folders `fleetrank-PURPOSE-XXXXXXXX` of this user and makes a new one.

    Raises:
        OSError: the folder cannot be made.
    """
    prefix = f"fleetrank-{purpose}-"
    for found in place.glob(f"{prefix}*"):
        # It belongs to another user, or another process removes it now.
        with contextlib.suppress(OSError):
            _remove_abandoned(found)
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))  # mode 0700
        # Another process may remove a new folder as abandoned before it is locked.
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(path, _OPEN)
            # Without locks, as for folders on NFS, no process removes it.
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
            if path.exists():
                return LockedFolder(path=path, lock=lock)
            os.close(lock)


def _remove_abandoned(folder: Path) -> None:
    lock = os.open(folder, _OPEN)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock).st_uid == os.getuid():
            remove_tree(folder)
    finally:
        os.close(lock)


def remove_tree(folder: Path) -> None:
    """Removes a folder whatever it contains: unlimited depth, modes of 000, links.

    Inner folders are moved up to the first level before they are emptied, so no path becomes long
    and the function does not recurse as `shutil.rmtree` does.

    Raises:
        OSError: something in it belongs to another user.
    """
    folder.chmod(0o700)
    names = (folder / f".{number}" for number in count())
    waiting = _emptied(folder)
    while waiting:
        found = waiting.pop()
        for inner in _emptied(found):
            waiting.append(inner.rename(next(name for name in names if not name.exists())))
        found.rmdir()
    folder.rmdir()


def _emptied(folder: Path) -> list[Path]:
    """Removes everything except folders, and returns the folders in it, opened for their owner."""
    folders = []
    for entry in list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False):
            Path(entry.path).chmod(0o700)  # also needed to move it: its `..` changes
            folders.append(Path(entry.path))
        else:
            Path(entry.path).unlink()
    return folders
