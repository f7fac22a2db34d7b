"""Explains errors of the system and of libraries that only occur while results are read.

Files are read lazily and in many places, so the error of a damaged file can occur anywhere.
"""

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from fleetrank.foundation.errors import BadFileError, FleetError, is_rust_panic
from fleetrank.foundation.files import is_about_storage, storage_error
from fleetrank.foundation.small_file import IrregularFileError
from fleetrank.orchestrator.errors import StoreError, UsageError

_WRONG_PATHS = {
    errno.ENAMETOOLONG: "give a shorter path",
    errno.ELOOP: "give the path of the file itself: a link of this path leads back to itself",
    errno.ENOTDIR: "check the path: a part of it is a file, and not a folder",
    errno.EISDIR: "give the path of a file: this is a folder",
}
"""Paths that a person gave and that no file can have; by error of the system its remedy."""
_READERS = {"polars", "pyarrow", "duckdb"}
"""Libraries that read stored parts and report a damaged part with their own error classes."""


def file_error(error: BaseException, folder: Path) -> FleetError | None:
    """The error for a file or a path that the system refuses; `None` for every other error.

    Args:
        error: what was raised.
        folder: the folder to name if the error names no file.
    """
    if isinstance(error, IrregularFileError):
        return UsageError(
            f"{error.filename} cannot be read: {error.strerror}", "give the path of a regular file"
        )
    if isinstance(error, OSError) and (remedy := _WRONG_PATHS.get(error.errno or 0)) is not None:
        return UsageError(f"{error.filename or folder} cannot be used: {error.strerror}", remedy)
    if isinstance(error, OSError) and is_about_storage(error):
        return storage_error(folder if error.filename is None else Path(error.filename), error)
    return None


def damage_of(error: BaseException, results: Path) -> FleetError | None:
    """The error that names a damaged or a vanished part; `None` if it is not about reading.

    Args:
        error: what was raised.
        results: the results folder; all its parts are checked.
    """
    is_of_reading = type(error).__module__.partition(".")[0] in _READERS or is_rust_panic(error)
    if not is_of_reading and not (isinstance(error, OSError) and error.errno is None):
        return None
    from fleetrank.analysis.stored.part_files import damage_error, damaged_part_of

    if (damaged := damaged_part_of(results)) is not None:
        return damage_error(damaged)
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
        if isinstance(error, OSError):
            raise BadFileError(
                f"{error.filename or results} cannot be used: {error.strerror or error}",
                "check the path",
            ) from error
        raise
