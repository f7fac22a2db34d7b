"""Programs and artifacts, named by sha256: kept on this host, and pushed once to each phone."""

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from fleetrank.device_agents.android.adb_server import ShellResult
from fleetrank.device_agents.android.adb_text import shown
from fleetrank.device_agents.android.phone import Phone
from fleetrank.device_agents.android.state.fitness import FOLDER
from fleetrank.device_agents.android.state.identity import free_bytes
from fleetrank.device_agents.errors import PermanentError, StorageFullError, TransientError
from fleetrank.foundation import files
from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.files import cache_folder, make_folder, open_regular, replace_file_with

# The files of a program on this host: one file, or a folder with the libraries beside it.

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
        return files.file_sha256(path)


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


SPARE_BYTES = 100 * 1024 * 1024
"""Space to leave free: on a full disk Android deletes caches and slows down."""

_ASK_TIMEOUT_S = 120.0
"""Timeout of one script; the checksum of a gigabyte on a slow phone takes about ten seconds."""
PUSH_BYTES_PER_S = 1_000_000
"""A fifth of the rate of a bad USB 2 cable."""

_MAKE_FOLDER = 'mkdir -p -- "$1" && df -k "$1"'
_SUMS = """
for file do
  [ -f "$file" ] && sum=$(sha256sum < "$file") || sum=
  echo "${sum%% *}"
done
"""
_LIST = 'ls -A -- "$1"'
_REMOVE = 'rm -rf -- "$1"'


@dataclass(frozen=True, slots=True)
class PhoneStorage:
    """The cached files of one phone. Every call checks the phone, which may have been wiped.

    Attributes:
        folder: folder on the phone; `devices remove` deletes it.
    """

    phone: Phone
    folder: str = FOLDER

    def path_of_program(self, program: ProgramFile) -> str:
        """Where a program lies on the phone."""
        return f"{self.folder}/tools/{program.sha256}/{program.name}"

    def path_of_artifact(self, sha256: str, suffix: str) -> str:
        """Where an artifact lies on the phone."""
        return f"{self.folder}/artifacts/{sha256}{suffix}"

    def place_program(self, program: ProgramFile) -> str:
        """Returns the path of an executable program on the phone; pushes what is missing of it.

        Raises:
            PermanentError: its folder on the phone holds another file, which is not verified.
            StorageFullError: not enough space.
            TransientError: the phone is lost, or its folder is not writable now.
        """
        remote = self.path_of_program(program)
        folder = remote.rpartition("/")[0]
        remotes = [f"{folder}/{part.name}" for part in program.parts]
        for part, to, found in zip(program.parts, remotes, self._sums(remotes), strict=True):
            if found != part.sha256:
                self._push(part.path, part.sha256, to, mode=0o755)
        if program.folder:
            self._refuse_others(folder, program.folder)
        return remote

    def place_artifact(self, path: Path, sha256: str, suffix: str) -> str:
        """Returns the path of an artifact on the phone; pushes it if missing; `suffix` has its dot.

        Raises:
            StorageFullError: not enough space.
            TransientError: the same as `place_program`.
        """
        remote = self.path_of_artifact(sha256, suffix)
        if self._sums([remote]) != [sha256]:
            self._push(path, sha256, remote, mode=0o644)
        return remote

    def clear(self) -> None:
        """Deletes all files of fleetrank on the phone.

        Raises:
            TransientError: the phone is lost, or the deletion failed.
        """
        answer = self.phone.shell(_REMOVE, self.folder, timeout_s=_ASK_TIMEOUT_S)
        if answer.exit_code != 0:
            raise _not_obeyed(f"delete {self.folder}", answer)

    def _push(self, local: Path, sha256: str, remote: str, *, mode: int) -> None:
        n_bytes = _size(local)
        self._require_room(remote.rpartition("/")[0], n_bytes)
        self.phone.push(local, remote, _ASK_TIMEOUT_S + n_bytes / PUSH_BYTES_PER_S, mode=mode)
        (found,) = self._sums([remote])
        if found != sha256:
            raise PermanentError(
                f"{local} has the sha256 {shown(found) or 'nothing'} on the phone, not {sha256}",
                "the file was changed on this host after registration: export it again",
            )

    def _refuse_others(self, folder: str, parts: tuple[ProgramPart, ...]) -> None:
        """Rejects files that the program could load as a library; files are never deleted here."""
        answer = self.phone.shell(_LIST, folder, timeout_s=_ASK_TIMEOUT_S)
        others = set(answer.stdout.splitlines()) - {part.name for part in parts}
        if others:
            raise PermanentError(
                f"{folder} on the phone has a file that is not of the program: "
                f"{shown(min(others))}",
                f"delete it there, or the folder: `adb shell rm -r {folder}`",
            )

    def _sums(self, remotes: Sequence[str]) -> list[str]:
        """The checksum of each file on the phone; empty for one that is not there.

        The contents are read each time, so a file that changed on the phone is never executed.
        Also, every repeat then finds the files in the phone's memory before its load is timed.
        """
        answer = self.phone.shell(_SUMS, *remotes, timeout_s=_ASK_TIMEOUT_S)
        sums = [line.strip() for line in answer.stdout.splitlines()]
        return (sums + [""] * len(remotes))[: len(remotes)]

    def _require_room(self, folder: str, n_bytes: int) -> None:
        answer = self.phone.shell(_MAKE_FOLDER, folder, timeout_s=_ASK_TIMEOUT_S)
        if answer.exit_code != 0:
            if "No space left" in answer.stderr + answer.stdout:
                raise _no_room(0, n_bytes)
            raise _not_obeyed(f"make {folder}", answer)
        free = free_bytes(answer.stdout)
        # An unknown answer does not stop the push: a full disk makes the push fail.
        if free is not None and free < n_bytes + SPARE_BYTES:
            raise _no_room(free, n_bytes)


def _size(local: Path) -> int:
    with failing_as(
        PermanentError, f"{local} cannot be read", "export it again, or give another file", OSError
    ):
        return local.stat().st_size


def _no_room(free: int, n_bytes: int) -> StorageFullError:
    return StorageFullError(
        f"the phone has {free} bytes free; {n_bytes} plus a reserve of {SPARE_BYTES} are needed",
        f"free space on the phone, or delete {FOLDER} there: fleetrank fills it again when needed",
    )


def _not_obeyed(what: str, answer: ShellResult) -> TransientError:
    return TransientError(
        f"the phone did not {what}: {shown(answer.stderr or answer.stdout)}",
        "check that /data/local/tmp on the phone is writable",
    )


class ProgramStore:
    """One folder, shared by all workspaces of a user."""

    def __init__(self, folder: Path | None = None) -> None:
        """`None` uses the user's own folder."""
        self.folder = folder or cache_folder() / "tools"

    def add(self, program: ProgramFile) -> None:
        """Keeps a copy, so that moving or rebuilding the original file changes no registration.

        Raises:
            PermanentError: the file has changed since it was identified.
            StorageError: the copy cannot be written.
        """
        if self._kept(program.name, program.sha256) is not None:
            return
        folder = self.folder / program.sha256
        if program.folder:
            # What lies there is damaged, and a file too many would be a library too many.
            shutil.rmtree(folder, ignore_errors=True)
        make_folder(folder)
        for part in program.parts:
            replace_file_with(folder / part.name, partial(_copy, part))

    def find(self, name: str, sha256: str) -> ProgramFile:
        """Returns the verified file of a registered program.

        Raises:
            PermanentError: the file is missing or has changed.
        """
        program = self._kept(name, sha256)
        if program is None:
            raise PermanentError(
                f"{name} with the sha256 {sha256[:12]}... is not in {self.folder}",
                f"register again: `fleetrank devices add` with `adb=SERIAL` and `tool={name}=PATH`",
            )
        return program

    def _kept(self, name: str, sha256: str) -> ProgramFile | None:
        """The program if it is here and unchanged."""
        path = self.folder / sha256 / name
        if not path.is_file():
            return None
        if file_sha256(path) == sha256:
            return ProgramFile(name=name, path=path, sha256=sha256)
        try:
            program = read_folder(name, path.parent)
        except PermanentError:
            return None
        return program if program.sha256 == sha256 else None


def _copy(part: ProgramPart, file: BinaryIO) -> None:
    """Copies one file; the copy is verified, so the original may change afterwards."""
    with open_regular(part.path) as source:
        shutil.copyfileobj(source, file)
    file.flush()
    if file_sha256(Path(file.name)) != part.sha256:
        raise PermanentError(f"{part.path} changed while it was copied", "register again")
