"""The artifact cache of one host: each file is sent once and verified; the size is bounded."""

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

from fleetrank.device_agents.contract.task import InferTask, MeasureTask
from fleetrank.device_agents.errors import DamagedFileError, PermanentError
from fleetrank.device_agents.hosts.messages import FilePart
from fleetrank.foundation.files import NoRoomError, sync_folder
from fleetrank.foundation.inputs import ModelInput
from fleetrank.foundation.small_file import file_sha256

LIMIT_BYTES = 20 * 1024**3
"""All exports of the study's models take 4 GB; the least recently used files go first."""
_STRAY_AFTER_S = 3600.0
"""A host can run for weeks; one part of an active delivery takes minutes at most."""
_SPARE_BYTES = 64 * 1024**2
"""Left free for the system and for what runtimes write."""
_NAME = re.compile(r"[0-9a-f]{64}(\.[a-z0-9]{1,8})?")
_DELIVERY = re.compile(r"[0-9a-f]{1,32}")


Task = TypeVar("Task", MeasureTask, InferTask)
_PATHS = ("artifact_path", "weights_path", "primer_path", "check_path", "inputs_path")


def file_paths(task: MeasureTask | InferTask) -> tuple[Path, ...]:
    """Paths of the artifacts a task needs, on the host that made the task."""
    return tuple(Path(path) for path in _path_texts(task))


def file_names(task: MeasureTask | InferTask) -> tuple[str, ...]:
    """The same artifacts as `SHA256.FORMAT`, the names in the workspace's cache."""
    return tuple(_name_of(path) for path in _path_texts(task))


def _path_texts(task: MeasureTask | InferTask) -> Sequence[str]:
    # A device that opens no file has a task without one.
    paths = [str(path) for name in _PATHS if (path := getattr(task, name, None))]
    # A file of a user that has another name is not sent.
    paths += [path for path in map(_values_path, task.execution.inputs) if _is_named(path)]
    if isinstance(task, MeasureTask) and task.canary is not None:
        paths.append(task.canary.artifact_path)
    return paths


def _values_path(one: ModelInput) -> str:
    return one.values.path or ""


def with_places(task: Task, place_of: Callable[[str], str]) -> Task:
    """The task with other paths of its files."""
    inputs = tuple(
        replace(one, values=replace(one.values, path=place_of(path)))
        if (path := _values_path(one))
        else one
        for one in task.execution.inputs
    )
    changes: dict[str, Any] = {
        name: place_of(found) for name in _PATHS if (found := getattr(task, name, None))
    }
    if isinstance(task, MeasureTask) and task.canary is not None:
        place = place_of(task.canary.artifact_path)
        changes["canary"] = replace(task.canary, artifact_path=place)
    return replace(task, execution=replace(task.execution, inputs=inputs), **changes)


def _name_of(path: str) -> str:
    """The last part of a path; called for each order, and a `Path` takes ten times as long."""
    return path.rpartition("/")[2]


def _is_named(path: str) -> bool:
    return _NAME.fullmatch(_name_of(path)) is not None


def waiting_for(missing: Collection[str], tasks: Iterable[MeasureTask]) -> Collection[str]:
    """Ids of the tasks that cannot start while these files are missing.

    A round needs the files of all its tasks: one that is measured in part shows no ratio.
    """
    if not missing:
        return ()
    lacking = [task for task in tasks if not set(file_names(task)).isdisjoint(missing)]
    return {task_id for task in lacking for task_id in (task.task_id, *task.members)}


def file_parts(path: Path, name: str, part_bytes: int) -> Iterator[FilePart]:
    """A file in parts, to be sent under a name."""
    delivery, size_bytes = secrets.token_hex(8), path.stat().st_size
    with path.open("rb") as file:
        content = file.read(part_bytes)
        is_last = False
        while not is_last:
            following = file.read(part_bytes)
            is_last = not following
            yield FilePart(
                name=name, delivery=delivery, size_bytes=size_bytes, content=content,
                is_last=is_last,
            )  # fmt: skip
            content = following


class HostFiles:
    """Files named `SHA256.FORMAT` in one folder; it writes and reads no other files there."""

    def __init__(self, folder: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._remove_strays(older_than_s=0.0)

    def missing(self, names: Iterable[str]) -> Sequence[str]:
        """Returns which of these files must be sent."""
        return [name for name in dict.fromkeys(names) if not self.path(name).is_file()]

    def here(self, task: Task) -> Task:
        """Returns the task with the paths of its files on this host."""
        places = {path: self._used(path) for path in _path_texts(task)}
        return with_places(task, lambda path: places.get(path, path))

    def receive(self, part: FilePart, in_use: Iterable[str] = ()) -> None:
        """Stores the next part of a file; the last part verifies the file and puts it in place.

        Args:
            part: the next part in order; the last one completes the file.
            in_use: names of files that may not be removed to make room.

        Raises:
            DamagedFileError: the received content is not the file; it is deleted.
            NoRoomError: the disk has no room for the file.
            PermanentError: the name is not one of an artifact.
            OSError: the disk is full; the received content is deleted.
        """
        path = self.path(part.name)
        if not _DELIVERY.fullmatch(part.delivery):
            raise PermanentError(f"{part.delivery!r} is not a delivery id", "resend the file")
        aside = self._folder / f".{part.name}.{part.delivery}.tmp"
        if not aside.exists():
            self._make_room(part.size_bytes, {path.name, *in_use})
        try:
            with aside.open("ab") as file:
                file.write(part.content)
                if part.is_last:
                    file.flush()
                    os.fsync(file.fileno())
            if part.is_last:
                self._put_in_place(aside, path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise

    def _put_in_place(self, aside: Path, path: Path) -> None:
        found = file_sha256(aside)
        if found != path.stem:
            raise DamagedFileError(f"{path.name} arrived damaged: {found}", "it will be resent")
        aside.replace(path)
        sync_folder(self._folder)

    def _make_room(self, size_bytes: int, keep: set[str]) -> None:
        """Deletes the least recently used files until one of this size fits.

        A deleted file that is needed again is sent again.
        """
        self._remove_strays(older_than_s=_STRAY_AFTER_S)
        files = [path for path in self._folder.iterdir() if _is_named(path.name)]
        found = sorted(((path.stat(), path) for path in files), key=lambda item: item[0].st_mtime)
        left = self._limit_bytes - sum(stat.st_size for stat, _ in found)
        for stat, path in found:
            if left >= size_bytes and self._free_bytes() >= size_bytes + _SPARE_BYTES:
                return
            if path.name not in keep:
                path.unlink(missing_ok=True)
                left += stat.st_size
        if self._free_bytes() < size_bytes:
            raise NoRoomError(
                f"{self._folder} has {self._free_bytes() >> 20} MiB left, and the file needs "
                f"{size_bytes >> 20} MiB",
                "free some space on that host",
            )

    def _free_bytes(self) -> int:
        return shutil.disk_usage(self._folder).free

    def _remove_strays(self, older_than_s: float) -> None:
        """Deletes the files of interrupted deliveries; an active delivery grows every minute."""
        newest_s = datetime.now(timezone.utc).timestamp() - older_than_s
        for path in self._folder.glob(".*.tmp"):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime <= newest_s:
                    path.unlink()

    def path(self, name: str) -> Path:
        """Where an artifact is or will be."""
        if not _NAME.fullmatch(name):
            raise PermanentError(f"{name!r} is not an artifact name", "send it as SHA256.FORMAT")
        return self._folder / name

    def _used(self, path: str) -> str:
        """The place of a file that is used now, as its time stamp records.

        Raises:
            DamagedFileError: it was deleted to make room.
        """
        place = self.path(_name_of(path))
        try:
            os.utime(place)
        except FileNotFoundError as error:
            raise DamagedFileError(f"{place.name} is not here any more", "it is resent") from error
        return str(place)
