"""Programs and artifacts on a phone, named by sha256: each is pushed once."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetrank.device_agents.android.adb_text import shown
from fleetrank.device_agents.android.execution.program_files import ProgramFile, ProgramPart
from fleetrank.device_agents.android.phone import Phone
from fleetrank.device_agents.android.phone_streams import ShellResult
from fleetrank.device_agents.android.state.probe_text import free_bytes
from fleetrank.device_agents.android.state.settings import FOLDER
from fleetrank.device_agents.errors import PermanentError, StorageFullError, TransientError
from fleetrank.foundation.errors import failing_as

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


def _size(local: Path) -> int:
    with failing_as(
        PermanentError, f"{local} cannot be read", "export it again, or give another file", OSError
    ):
        return local.stat().st_size
