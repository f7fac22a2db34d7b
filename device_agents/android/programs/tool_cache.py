"""What a phone keeps between tasks: programs and artifacts, pushed once, named by their sha256."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fleetrank.device_agents.android.adb.adb_text import shown
from fleetrank.device_agents.android.adb.shell_stream import ShellResult
from fleetrank.device_agents.android.programs.tools import Tool
from fleetrank.device_agents.android.state.df_text import free_bytes
from fleetrank.device_agents.android.state.settings import FOLDER
from fleetrank.device_agents.errors import PermanentError, StorageFullError, TransientError

SPARE_BYTES = 100 * 1024 * 1024
"""Left free beside a file: Android begins to delete caches, and to slow down, on a full disk."""

_ASK_TIMEOUT_S = 120.0
"""Of one script: summing a gigabyte on a slow phone takes some ten seconds."""
_PUSH_BYTES_PER_S = 1_000_000
"""A fifth of what a bad USB 2 cable carries."""

_MAKE_FOLDER = 'mkdir -p -- "$1" && df -k "$1"'
_SUM = 'if [ -f "$1" ]; then sum=$(sha256sum < "$1") && echo "${sum%% *}"; fi'
_REMOVE = 'rm -rf -- "$1"'


class Storage(Protocol):
    """The part of `phone.Phone` that is needed here."""

    def shell(self, script: str, *arguments: str, timeout_s: float) -> ShellResult:
        """Runs a literal script over arguments that no shell interprets."""
        ...

    def push(self, local: Path, remote: str, timeout_s: float, *, mode: int = 0o644) -> None:
        """Copies a file, checked and renamed on the phone."""
        ...


@dataclass(frozen=True, slots=True)
class ToolCache:
    """The kept files of one phone. Asks the phone anew on every call: it may have been wiped.

    Attributes:
        folder: on the phone; `devices remove` deletes all of it.
    """

    phone: Storage
    folder: str = FOLDER

    def place_tool(self, tool: Tool) -> str:
        """The path of an executable program on the phone, pushed unless it is there.

        Raises:
            StorageFullError: no room.
            TransientError: the phone is lost, or its folder cannot be written just now.
        """
        remote = f"{self.folder}/tools/{tool.sha256}/{tool.name}"
        self._place(tool.path, tool.sha256, remote, mode=0o755)
        return remote

    def place_artifact(self, path: Path, sha256: str, suffix: str) -> str:
        """The path of an artifact on the phone, pushed unless it is there; `suffix` has its dot.

        Raises:
            StorageFullError: no room.
            TransientError: as `place_tool`.
        """
        remote = f"{self.folder}/artifacts/{sha256}{suffix}"
        self._place(path, sha256, remote, mode=0o644)
        return remote

    def clear(self) -> None:
        """Deletes everything of ours.

        Raises:
            TransientError: the phone is lost, or did not obey.
        """
        answer = self.phone.shell(_REMOVE, self.folder, timeout_s=_ASK_TIMEOUT_S)
        if answer.exit_code != 0:
            raise _not_obeyed(f"delete {self.folder}", answer)

    def _place(self, local: Path, sha256: str, remote: str, *, mode: int) -> None:
        # By content each time: nothing that changed on the phone is ever executed, and the file is
        # in the phone's memory before its load is timed, for the first repeat as for the last.
        if self._sum(remote) == sha256:
            return
        n_bytes = _size(local)
        self._require_room(remote.rpartition("/")[0], n_bytes)
        self.phone.push(local, remote, _ASK_TIMEOUT_S + n_bytes / _PUSH_BYTES_PER_S, mode=mode)
        if (found := self._sum(remote)) != sha256:
            raise PermanentError(
                f"{local} has become {shown(found) or 'nothing'} on the phone, not {sha256}",
                "the file was changed on this host after it was registered: export it again",
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
        # An unknown answer is no reason to refuse: a full disk shows itself while pushing.
        if free is not None and free < n_bytes + SPARE_BYTES:
            raise _no_room(free, n_bytes)


def _size(local: Path) -> int:
    try:
        return local.stat().st_size
    except OSError as error:
        raise PermanentError(
            f"{local} cannot be read: {error.strerror}", "export it again, or name another file"
        ) from error


def _no_room(free: int, n_bytes: int) -> StorageFullError:
    return StorageFullError(
        f"the phone has {free} bytes free; {n_bytes} and {SPARE_BYTES} to spare are needed",
        f"free space on the phone, or delete {FOLDER} there: it is filled again as needed",
    )


def _not_obeyed(what: str, answer: ShellResult) -> TransientError:
    return TransientError(
        f"the phone did not {what}: {shown(answer.stderr or answer.stdout)}",
        "check that /data/local/tmp can be written on the phone",
    )
