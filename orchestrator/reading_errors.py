"""Explains errors of the system and of libraries that only occur while results are read.

Files are read lazily and in many places, so the error of a damaged file can occur anywhere.
"""

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

from fleetrank.foundation.errors import FleetError, is_out_of_memory, is_rust_panic
from fleetrank.foundation.files import is_about_storage, storage_error
from fleetrank.orchestrator.errors import OrchestratorError, StoreError, UsageError

_WRONG_PATHS = {
    errno.ENAMETOOLONG: "give a shorter path",
    errno.ELOOP: "give the path of the file itself: a link of this path leads back to itself",
    errno.ENOTDIR: "check the path: a part of it is a file, and not a folder",
    errno.EISDIR: "give the path of a file: this is a folder",
    errno.EINVAL: "give the path of a regular file",
}
"""Paths that a person gave and that no file can have; by error of the system its remedy."""
_NO_LOCKS = "use a folder on a file system with locks: a local disk, or NFS with its lock service"
_NO_MEMORY = "select fewer rows, end other programs, or raise the limit (`ulimit -v`)"
_REFUSED = {
    errno.ENOLCK: _NO_LOCKS,
    errno.EOPNOTSUPP: _NO_LOCKS,
    errno.ENOSYS: _NO_LOCKS,
    errno.EMFILE: "raise the limit of open files (`ulimit -n 4096`)",
    errno.ENOMEM: _NO_MEMORY,
    errno.EBADF: "keep standard input and output open, or direct them to /dev/null",
}
"""Other refusals of the system, as in `_WRONG_PATHS`."""
_IN_TEXT = re.compile(r"\(os error (\d+)\)")
"""Where libraries in Rust write the number of the system's error."""
_READERS = {"polars", "pyarrow", "duckdb"}
"""Libraries that read stored parts and report a damaged part with their own error classes."""


def file_error(error: BaseException, folder: Path) -> FleetError | None:
    """The error for what the system refuses; `None` for every other error.

    Args:
        error: what was raised.
        folder: the folder to name if the error names no file.
    """
    if isinstance(error, FleetError):
        return None
    number, name = getattr(error, "errno", None) or 0, getattr(error, "filename", None) or folder
    found = None
    if isinstance(error, OSError) and number:
        remedy = _WRONG_PATHS.get(number, "check the path")
        found = UsageError(f"{name} cannot be used: {error.strerror}", remedy)
    elif isinstance(error, UnicodeError) and "'idna'" in str(error):
        found = UsageError(f"no host can have that name: {error}", "correct the host's name")
    elif (said := _IN_TEXT.search(str(error))) is not None:
        number = int(said[1])
    elif is_out_of_memory(error):
        number = errno.ENOMEM
    system = OSError(number, os.strerror(number))
    if number in _REFUSED:
        return OrchestratorError(f"{system.strerror}, at {name}", _REFUSED[number])
    return storage_error(Path(name), system) if is_about_storage(system) else found


def damage_of(error: BaseException, results: Path) -> FleetError | None:
    """The error that names a damaged or a vanished part; `None` if it is not about reading.

    Args:
        error: what was raised.
        results: the results folder; all its parts are checked.
    """
    is_of_reading = type(error).__module__.partition(".")[0] in _READERS or is_rust_panic(error)
    if not is_of_reading and not (isinstance(error, OSError) and error.errno is None):
        return None
    from fleetrank.analysis.stored.part_list import damage_in

    if (damaged := damage_in(results)) is not None:
        return damaged
    if isinstance(error, FileNotFoundError):
        return StoreError(
            f"rows were merged or deleted while they were read: {error}", "run the command again"
        )
    return None


@contextlib.contextmanager
def explained_errors(results: Path) -> Iterator[None]:
    """Turns errors of files below a results folder into errors with a remedy.

    Raises:
        FleetError: a file is damaged, or cannot be read or written.
    """
    try:
        yield
    except FleetError:
        raise
    except BaseException as error:
        if found := file_error(error, results) or damage_of(error, results):
            raise found from error
        raise
