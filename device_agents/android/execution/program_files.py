"""The files of a program on this host: one file, or a folder with the libraries beside it."""

import hashlib
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fleetrank.device_agents.android.adb_text import shown
from fleetrank.device_agents.errors import PermanentError
from fleetrank.foundation import small_file
from fleetrank.foundation.errors import failing_as

FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}", re.ASCII)
"""A name becomes a file name on the host and on the phone."""
MAX_FILES = 64
"""QNN's libraries for all its processors are about 40."""
MAX_FOLDER_BYTES = 1 << 30
"""Several times QNN's libraries; each repeat reads all of it on the phone to verify it."""
_UNFINISHED = ".part"
"""The end of the names under which files are pushed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramPart:
    """One file of a program."""

    name: str
    path: Path
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramFile:
    """A program on this host, ready to be pushed.

    Attributes:
        path: of the program itself.
        sha256: of the file; of the list of all files and their checksums if there is a folder.
        folder: all files of the program's folder, itself included, by name; empty for one file.
    """

    name: str
    path: Path
    sha256: str
    folder: tuple[ProgramPart, ...] = ()

    @property
    def parts(self) -> tuple[ProgramPart, ...]:
        """All files to push."""
        return self.folder or (ProgramPart(name=self.name, path=self.path, sha256=self.sha256),)


def read_program(name: str, path: Path) -> ProgramFile:
    """A program that a user gives, as a file or as a folder.

    Raises:
        PermanentError: it cannot be read, or the folder holds what `read_folder` refuses.
    """
    if path.is_dir():
        return read_folder(name, path)
    return ProgramFile(name=name, path=path, sha256=file_sha256(path))


def read_folder(name: str, folder: Path) -> ProgramFile:
    """A folder with the program `name` and its libraries.

    Raises:
        PermanentError: it lacks the program; or it has a link, a folder, a name that a phone may
            not understand, too many files or too large ones.
    """
    paths = _files_of(name, folder)
    parts = tuple(ProgramPart(name=p.name, path=p, sha256=file_sha256(p)) for p in paths)
    return ProgramFile(name=name, path=folder / name, sha256=_checksum_of(parts), folder=parts)


def file_sha256(path: Path) -> str:
    """The sha256 of a file on this host.

    Raises:
        PermanentError: it cannot be read.
    """
    with failing_as(
        PermanentError, f"{path} cannot be read", "give a file: `tool=NAME=PATH`", OSError
    ):
        return small_file.file_sha256(path)


def _files_of(name: str, folder: Path) -> list[Path]:
    """The paths of the folder's files by name, after all that can be refused without reading."""
    found: dict[str, Path] = {}
    n_bytes = 0
    remedy = "give a folder: `tool=NAME=PATH`"
    explained = failing_as(PermanentError, f"{folder} cannot be read", remedy, OSError)
    with explained, os.scandir(folder) as entries:
        for entry in entries:
            n_bytes += _file_size(folder, entry)
            found[entry.name] = folder / entry.name
            if len(found) > MAX_FILES or n_bytes > MAX_FOLDER_BYTES:
                raise _refused(folder, f"more than {MAX_FILES} files or {MAX_FOLDER_BYTES} bytes")
    if name not in found:
        raise _refused(folder, f"no file {name}, which would be the program")
    return [found[key] for key in sorted(found)]


def _file_size(folder: Path, entry: os.DirEntry[str]) -> int:
    """The size of a regular file with an ordinary name."""
    if not FILE_NAME.fullmatch(entry.name) or entry.name.endswith(_UNFINISHED):
        raise _refused(folder, f"the name {shown(entry.name)!r}")
    found = entry.stat(follow_symlinks=False)
    if not stat.S_ISREG(found.st_mode):
        raise _refused(folder, f"{entry.name}, which is a link, a folder or no file")
    return found.st_size


def _refused(folder: Path, what: str) -> PermanentError:
    return PermanentError(
        f"the program's folder {folder} has {what}",
        "give a folder that holds the program under its own name and its libraries, all of them "
        "ordinary files with names of letters, digits and . _ + -: `tool=NAME=PATH`",
    )


def _checksum_of(parts: Iterable[ProgramPart]) -> str:
    """One checksum of all names and checksums, in the form that `sha256sum` prints."""
    listed = "".join(f"{part.sha256}  {part.name}\n" for part in parts)
    return hashlib.sha256(listed.encode("ascii")).hexdigest()
