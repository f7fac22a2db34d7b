"""The artifact cache of one host: each file is sent once and verified; the size is bounded."""

import contextlib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from fleetrank.device_agents.contract.task import MeasureTask
from fleetrank.device_agents.errors import DamagedFileError, PermanentError
from fleetrank.device_agents.hosts.messages import FilePart
from fleetrank.foundation.files import sync_folder
from fleetrank.foundation.small_file import file_sha256

LIMIT_BYTES = 20 * 1024**3
"""All exports of the study's models take 4 GB; the least recently used files go first."""
_STRAY_AFTER_S = 3600.0
"""A host can run for weeks; one part of an active delivery takes minutes at most."""
_NAME = re.compile(r"[0-9a-f]{64}\.[a-z0-9]{1,8}")
_DELIVERY = re.compile(r"[0-9a-f]{1,32}")


def file_paths(task: MeasureTask) -> tuple[Path, ...]:
    """Paths of the artifacts a task needs, on the host that made the task."""
    return tuple(Path(path) for path in _path_texts(task))


def file_names(task: MeasureTask) -> tuple[str, ...]:
    """The same artifacts as `SHA256.FORMAT`, the names in the workspace's cache."""
    return tuple(_name_of(path) for path in _path_texts(task))


def _path_texts(task: MeasureTask) -> Sequence[str]:
    # A device that opens no file has a task without one.
    paths = [task.artifact_path] if task.artifact_path else []
    more = (task.weights_path, task.primer_path, task.check_path)
    paths += [path for path in more if path is not None]
    if task.canary is not None:
        paths.append(task.canary.artifact_path)
    return paths


def _name_of(path: str) -> str:
    """The last part of a path; called for each order, and a `Path` takes ten times as long."""
    return path.rpartition("/")[2]


class HostFiles:
    """Files named `SHA256.FORMAT` in one folder; it writes and reads no other files there."""

    def __init__(self, folder: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._remove_strays(older_than_s=0.0)

    def missing(self, names: Iterable[str]) -> Sequence[str]:
        """Returns which of these files must be sent."""
        return [name for name in dict.fromkeys(names) if not self._path(name).is_file()]

    def here(self, task: MeasureTask) -> MeasureTask:
        """Returns the task with the paths of its files on this host."""
        for path in _path_texts(task):
            # The file's time stamp records its last use.
            os.utime(self._here(path))
        canary = task.canary
        if canary is not None:
            canary = replace(canary, artifact_path=self._here(canary.artifact_path))
        return replace(
            task,
            artifact_path=task.artifact_path and self._here(task.artifact_path),
            weights_path=None if task.weights_path is None else self._here(task.weights_path),
            primer_path=None if task.primer_path is None else self._here(task.primer_path),
            check_path=None if task.check_path is None else self._here(task.check_path),
            canary=canary,
        )

    def receive(self, part: FilePart, in_use: Iterable[str] = ()) -> None:
        """Stores the next part of a file; the last part verifies the file and puts it in place.

        Args:
            part: the next part in order; the last one completes the file.
            in_use: names of files that may not be removed to make room.

        Raises:
            DamagedFileError: the received content is not the file; it is deleted.
            PermanentError: the name is not one of an artifact.
            OSError: the disk is full; the received content is deleted.
        """
        path = self._path(part.name)
        if not _DELIVERY.fullmatch(part.delivery):
            raise PermanentError(f"{part.delivery!r} is not a delivery id", "resend the file")
        aside = self._folder / f".{part.name}.{part.delivery}.tmp"
        try:
            with aside.open("ab") as file:
                file.write(part.content)
                if part.is_last:
                    file.flush()
                    os.fsync(file.fileno())
            if part.is_last:
                self._put_in_place(aside, path)
                self._prune({path.name, *in_use})
        except BaseException:
            aside.unlink(missing_ok=True)
            raise

    def _put_in_place(self, aside: Path, path: Path) -> None:
        found = file_sha256(aside)
        if found != path.stem:
            raise DamagedFileError(f"{path.name} arrived damaged: {found}", "it will be resent")
        aside.replace(path)
        sync_folder(self._folder)

    def _prune(self, keep: set[str]) -> None:
        """Deletes the least recently used files until the rest fits.

        A deleted file that is needed again is sent again.
        """
        self._remove_strays(older_than_s=_STRAY_AFTER_S)
        files = [path for path in self._folder.iterdir() if _NAME.fullmatch(path.name)]
        found = sorted(((path.stat(), path) for path in files), key=lambda item: item[0].st_mtime)
        total = sum(stat.st_size for stat, _ in found)
        for stat, path in found:
            if total <= self._limit_bytes:
                return
            if path.name not in keep:
                path.unlink(missing_ok=True)
                total -= stat.st_size

    def _remove_strays(self, older_than_s: float) -> None:
        """Deletes the files of interrupted deliveries; an active delivery grows every minute."""
        newest_s = datetime.now(timezone.utc).timestamp() - older_than_s
        for path in self._folder.glob(".*.tmp"):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime <= newest_s:
                    path.unlink()

    def _here(self, path: str) -> str:
        return f"{self._folder}/{_checked(_name_of(path))}"

    def _path(self, name: str) -> Path:
        return self._folder / _checked(name)


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise PermanentError(f"{name!r} is not an artifact name", "send it as SHA256.FORMAT")
    return name
