"""Writes files so that a reader, a crash or a full disk never leaves a partial file.

This module decides which system errors concern storage, with their messages and remedies.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.small_file import open_checked

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


def user_data() -> Path:
    """The folder for what this user keeps without a workspace; may not exist yet."""
    data = os.environ.get("XDG_DATA_HOME")
    return (Path(data) if data else Path.home() / ".local" / "share") / "fleetrank"


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
