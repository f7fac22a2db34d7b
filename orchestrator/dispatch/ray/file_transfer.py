"""Sends a host the artifacts it lacks, in a thread beside the control loop."""

import logging
import secrets
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fleetrank.device_agents.errors import TransientError
from fleetrank.orchestrator.dispatch.host.host_files import FilePart, file_names, file_paths
from fleetrank.orchestrator.dispatch.host.host_service import DeviceTask

if TYPE_CHECKING:
    import ray

_log = logging.getLogger(__name__)

_PART_BYTES = 16 * 1024 * 1024
"""Part size: small compared with an object store of 100 MB, large enough for few calls."""
_PART_TIMEOUT_S = 120.0
"""One part takes this long over a link of 1 Mbit/s."""


class FileTransfer:
    """A transfer of the files that some tasks need.

    Attributes:
        tasks: tasks that were not accepted; they are sent again after the transfer.
        error: why the transfer failed; `None` if it did not.
    """

    def __init__(
        self, actor: "ray.actor.ActorHandle", tasks: Sequence[DeviceTask], missing: Sequence[str]
    ) -> None:
        wanted = set(missing)
        self.tasks = tuple(t for t in tasks if not wanted.isdisjoint(file_names(t.task)))
        self.error: str | None = None
        self._actor = actor
        self._paths = {path.name: path for given in self.tasks for path in file_paths(given.task)}
        self._missing = tuple(missing)
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._send_all, daemon=True)

    @property
    def is_over(self) -> bool:
        """Whether sending has ended; the host reports whether files are still missing."""
        return not self._thread.is_alive()

    def start(self) -> None:
        """Starts sending; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Sends no further part; returns at once."""
        self._is_stopped.set()

    def _send_all(self) -> None:
        try:
            for name in self._missing:
                self._send(self._paths[name])
        except Exception as error:
            # Ray appends the traceback of the remote process.
            self.error = str(error).strip().splitlines()[-1]
            _log.warning("an artifact did not reach its host: %s", self.error)

    def _send(self, path: Path) -> None:
        import ray

        delivery = secrets.token_hex(8)
        for content, is_last in _parts(path):
            # After Ray has ended, `ray.put` would start a new Ray.
            if self._is_stopped.is_set():
                raise TransientError("stopped on request", "the file will be resent if needed")
            part = FilePart(name=path.name, delivery=delivery, content=content, is_last=is_last)
            # Parts are sent one after another, because Ray keeps each part in its object store.
            ray.get(self._actor.receive.remote(ray.put(part)), timeout=_PART_TIMEOUT_S)


def _parts(path: Path) -> Iterator[tuple[bytes, bool]]:
    with path.open("rb") as file:
        content = file.read(_PART_BYTES)
        while True:
            following = file.read(_PART_BYTES)
            yield content, not following
            if not following:
                return
            content = following
