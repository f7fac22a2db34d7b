"""Programs and artifacts, named by sha256: kept on this host, and pushed once to each phone."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from fleetrank.device_agents.android.adb.adb_text import shown
from fleetrank.device_agents.android.adb.streams import ShellResult
from fleetrank.device_agents.android.execution.catalogue import ProgramFile, file_sha256
from fleetrank.device_agents.android.state.probe_text import free_bytes
from fleetrank.device_agents.android.state.settings import FOLDER
from fleetrank.device_agents.errors import PermanentError, StorageFullError, TransientError
from fleetrank.foundation.files import cache_folder, make_folder, replace_file_with
from fleetrank.foundation.small_file import open_regular

SPARE_BYTES = 100 * 1024 * 1024
"""Space to leave free: on a full disk Android deletes caches and slows down."""

_ASK_TIMEOUT_S = 120.0
"""Timeout of one script; the checksum of a gigabyte on a slow phone takes about ten seconds."""
_PUSH_BYTES_PER_S = 1_000_000
"""A fifth of the rate of a bad USB 2 cable."""

_MAKE_FOLDER = 'mkdir -p -- "$1" && df -k "$1"'
_SUM = 'if [ -f "$1" ]; then sum=$(sha256sum < "$1") && echo "${sum%% *}"; fi'
_REMOVE = 'rm -rf -- "$1"'


class Storage(Protocol):
    """The part of `phone.Phone` that this module needs."""

    def shell(self, script: str, *arguments: str, timeout_s: float) -> ShellResult:
        """Runs a literal script with arguments that no shell interprets."""
        ...

    def push(self, local: Path, remote: str, timeout_s: float, *, mode: int = 0o644) -> None:
        """Copies a file, checks it on the phone and renames it."""
        ...


@dataclass(frozen=True, slots=True)
class PhoneStorage:
    """The cached files of one phone. Every call checks the phone, which may have been wiped.

    Attributes:
        folder: folder on the phone; `devices remove` deletes it.
    """

    phone: Storage
    folder: str = FOLDER

    def place_program(self, program: ProgramFile) -> str:
        """Returns the path of an executable program on the phone; pushes it if it is missing.

        Raises:
            StorageFullError: not enough space.
            TransientError: the phone is lost, or its folder is not writable now.
        """
        remote = f"{self.folder}/tools/{program.sha256}/{program.name}"
        self._place(program.path, program.sha256, remote, mode=0o755)
        return remote

    def place_artifact(self, path: Path, sha256: str, suffix: str) -> str:
        """Returns the path of an artifact on the phone; pushes it if missing; `suffix` has its dot.

        Raises:
            StorageFullError: not enough space.
            TransientError: the same as `place_program`.
        """
        remote = f"{self.folder}/artifacts/{sha256}{suffix}"
        self._place(path, sha256, remote, mode=0o644)
        return remote

    def clear(self) -> None:
        """Deletes all files of fleetrank on the phone.

        Raises:
            TransientError: the phone is lost, or the deletion failed.
        """
        answer = self.phone.shell(_REMOVE, self.folder, timeout_s=_ASK_TIMEOUT_S)
        if answer.exit_code != 0:
            raise _not_obeyed(f"delete {self.folder}", answer)

    def _place(self, local: Path, sha256: str, remote: str, *, mode: int) -> None:
        # The content is checked each time, so a file that changed on the phone is never executed.
        # Also, every repeat then finds the file in the phone's memory before its load is timed.
        if self._sum(remote) == sha256:
            return
        n_bytes = _size(local)
        self._require_room(remote.rpartition("/")[0], n_bytes)
        self.phone.push(local, remote, _ASK_TIMEOUT_S + n_bytes / _PUSH_BYTES_PER_S, mode=mode)
        if (found := self._sum(remote)) != sha256:
            raise PermanentError(
                f"{local} has the sha256 {shown(found) or 'nothing'} on the phone, not {sha256}",
                "the file was changed on this host after registration: export it again",
            )

    def _sum(self, remote: str) -> str:
        answer = self.phone.shell(_SUM, remote, timeout_s=_ASK_TIMEOUT_S)
        return answer.stdout.strip()

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
    try:
        return local.stat().st_size
    except OSError as error:
        raise PermanentError(
            f"{local} cannot be read: {error.strerror}", "export it again, or give another file"
        ) from error


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
        target = self._path(program.name, program.sha256)
        if target.is_file() and file_sha256(target) == program.sha256:
            return
        make_folder(target.parent)

        def copy(file: BinaryIO) -> None:
            with open_regular(program.path) as source:
                shutil.copyfileobj(source, file)
            file.flush()
            if file_sha256(Path(file.name)) != program.sha256:
                raise PermanentError(
                    f"{program.path} changed while it was copied", "register again"
                )

        replace_file_with(target, copy)

    def find(self, name: str, sha256: str) -> ProgramFile:
        """Returns the verified file of a registered program.

        Raises:
            PermanentError: the file is missing or has changed.
        """
        path = self._path(name, sha256)
        if not path.is_file() or file_sha256(path) != sha256:
            raise PermanentError(
                f"{name} with the sha256 {sha256[:12]}... is not in {self.folder}",
                f"register again: `fleetrank devices add --adb SERIAL --tool {name}=PATH`",
            )
        return ProgramFile(name=name, path=path, sha256=sha256)

    def _path(self, name: str, sha256: str) -> Path:
        return self.folder / sha256 / name
