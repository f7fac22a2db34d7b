"""Sends a host the artifacts it lacks, in a thread beside the loop that runs the devices."""

import logging
import secrets
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fleetrank.device_agents.errors import TransientError
from fleetrank.orchestrator.dispatch.host.host_files import FilePart, file_names, file_paths
from fleetrank.orchestrator.dispatch.host.host_service import Order

if TYPE_CHECKING:
    import ray

_log = logging.getLogger(__name__)

_PART_BYTES = 16 * 1024 * 1024
"""Small beside an object store of 100 MB, large beside the cost of a call."""
_PART_TIMEOUT_S = 120.0
"""A part over a link of 1 Mbit/s takes as long."""


class Delivery:
    """The files some orders wait for.

    Attributes:
        orders: those that could not be taken; to be sent again when the delivery is over.
        error: why it ended early; `None` while it goes well.
    """

    def __init__(
        self, actor: "ray.actor.ActorHandle", orders: Sequence[Order], missing: Sequence[str]
    ) -> None:
        wanted = set(missing)
        self.orders = tuple(o for o in orders if not wanted.isdisjoint(file_names(o.task)))
        self.error: str | None = None
        self._actor = actor
        self._paths = {path.name: path for order in self.orders for path in file_paths(order.task)}
        self._missing = tuple(missing)
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._send_all, daemon=True)

    @property
    def is_over(self) -> bool:
        """Nothing more is sent; the host says whether it now has everything."""
        return not self._thread.is_alive()

    def start(self) -> None:
        """Begins to send; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Sends no further part; returns at once."""
        self._is_stopped.set()

    def _send_all(self) -> None:
        try:
            for name in self._missing:
                self._send(self._paths[name])
        except Exception as error:
            # Ray appends the traceback of the other side.
            self.error = str(error).strip().splitlines()[-1]
            _log.warning("an artifact did not reach its host: %s", self.error)

    def _send(self, path: Path) -> None:
        import ray

        delivery = secrets.token_hex(8)
        for content, is_last in _parts(path):
            # After the end of Ray, `ray.put` would start a whole new one.
            if self._is_stopped.is_set():
                raise TransientError("stopped on request", "it is sent again when it is needed")
            part = FilePart(name=path.name, delivery=delivery, content=content, is_last=is_last)
            # One after another: Ray keeps the content in its object store meanwhile.
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
