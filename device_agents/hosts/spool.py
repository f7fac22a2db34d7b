"""The spool of a host: measurements that no driver has acknowledged yet."""

import contextlib
import json
import logging
import os
import shutil
import threading
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.task import sweep_of
from fleetrank.foundation.codec import CodecError, from_plain, to_json
from fleetrank.foundation.files import replace_file, sync_folder

orjson: Any = import_module("orjson") if find_spec("orjson") else None
_log = logging.getLogger(__name__)

SPOOL = "spool.jsonl"
"""Name of the spool file in the folder of a host."""

_REWRITE_BYTES = 64 * 1024 * 1024
"""A larger spool file is rewritten without acknowledged entries; its content fits in memory."""


class Spool:
    """Keeps measurements in memory and in one file of JSON lines. Safe to use from any thread.

    A measurement is safe from a crash of its process when `add` has returned, and from a power cut
    after `sync`. A measurement that was acknowledged just before a crash is offered again; the
    driver skips measurements that it has stored.
    """

    def __init__(self, path: Path, most: int | None = None) -> None:
        """Opens a spool and reads the entries of an earlier process.

        Args:
            path: of its file.
            most: how many measurements it keeps; the oldest are forgotten. `None` keeps all.
        """
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path = path
        self._lock = threading.Lock()
        self._syncing = threading.Lock()
        self._most = most
        self._kept = {found.task_id: found for found in _read(path)}
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o600)
        # A line that a crash cut off becomes a separate line, which is not a measurement.
        self._size_bytes = os.lseek(self._descriptor, 0, os.SEEK_END)
        self._is_synced = True
        if self._size_bytes:
            self._write(b"\n")
        sync_folder(path.parent)

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._kept

    def add(self, measurement: Measurement) -> None:
        """Keeps a measurement; if the disk is full, only in memory."""
        line = _as_line(measurement)
        with self._lock:
            self._kept[measurement.task_id] = measurement
            while self._most is not None and len(self._kept) > self._most:
                del self._kept[next(iter(self._kept))]
            try:
                self._write(line)
            except OSError as error:
                _log.warning("%s: %s is kept in memory only", self._path, error)

    def of_sweep(self, sweep_id: str, without: Iterable[str] = ()) -> Sequence[Measurement]:
        """Returns the kept measurements of a sweep, in order of arrival."""
        passed = set(without)
        with self._lock:
            return [
                found
                for task_id, found in self._kept.items()
                if task_id not in passed and sweep_of(task_id) == sweep_id
            ]

    def forget(self, task_ids: Iterable[str]) -> None:
        """Deletes the measurements that a driver has acknowledged."""
        with self._lock:
            for task_id in task_ids:
                self._kept.pop(task_id, None)
            if not self._kept and self._size_bytes:
                os.ftruncate(self._descriptor, 0)
                self._size_bytes = 0
            elif self._size_bytes > _REWRITE_BYTES:
                self._rewrite()

    def sync(self) -> None:
        """Makes all kept measurements safe from a power cut; one sync for many measurements."""
        with self._syncing:
            with self._lock:
                if self._is_synced:
                    return
                # Before the sync: measurements added during the sync need another one.
                self._is_synced = True
                descriptor = os.dup(self._descriptor)
            # Without the lock, so that a measurement that ends now does not wait for the disk.
            try:
                os.fsync(descriptor)
            except OSError:
                self._is_synced = False
                raise
            finally:
                os.close(descriptor)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError:
            # The next line would be appended to an incomplete line.
            os.ftruncate(self._descriptor, self._size_bytes)
            raise
        self._size_bytes += len(data)
        self._is_synced = False

    def _rewrite(self) -> None:
        lines = b"".join(_as_line(found) for found in self._kept.values())
        if 2 * len(lines) > self._size_bytes:
            return
        replace_file(self._path, lines, is_synced=True)
        os.close(self._descriptor)
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._size_bytes = len(lines)


def remove_spent(folder: Path) -> None:
    """Removes the folder of a host that has ended, unless its spool holds a measurement."""
    spool = folder / SPOOL
    with contextlib.suppress(OSError):
        if spool.stat().st_size == 0:
            shutil.rmtree(folder)


def _read(path: Path) -> Iterable[Measurement]:
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                yield _of_line(line)
            except (ValueError, CodecError) as error:
                _log.warning("%s, line %d is not a measurement: %s", path, number, error)


def _as_line(measurement: Measurement) -> bytes:
    """Writes JSON; with orjson ten times as fast, and a board has no orjson.

    Raises:
        TypeError: an integer has more than 64 bits.
        CodecError: the same without orjson.
    """
    if orjson is None:
        return to_json(measurement).encode() + b"\n"
    line: bytes = orjson.dumps(measurement, option=orjson.OPT_APPEND_NEWLINE)
    return line


def _of_line(line: bytes) -> Measurement:
    """Reads the output of `_as_line`.

    Raises:
        ValueError: the line is not JSON.
        CodecError: a field is unknown, missing or of the wrong type.
    """
    return from_plain(Measurement, json.loads(line) if orjson is None else orjson.loads(line))
