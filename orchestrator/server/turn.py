"""The right to compute: at most one computation of the server, and none during a measurement.

Making a page or answering SQL is a computation. It would change the latency of a measurement on
this host. Reading a file that has grown is cheap and is not counted.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from fleetrank.foundation.lease import host_lease
from fleetrank.orchestrator.server.errors import BusyError

_MAX_WAITING = 24
"""Each holds one of the server's 40 threads; further requests get an error and try again."""


class Turn:
    """The right to compute; used by many threads."""

    def __init__(self, *, max_waiting: int = _MAX_WAITING) -> None:
        self._waiting = threading.BoundedSemaphore(max_waiting)
        self._one = threading.Lock()

    @contextmanager
    def take(self, patience_s: float) -> Iterator[None]:
        """Holds the right to compute during the block; waits at most `patience_s` for it.

        Raises:
            BusyError: too many requests wait, or the right was not free in time.
        """
        if not self._waiting.acquire(blocking=False):
            raise BusyError(
                "too many requests wait for a computation", "try again in a few seconds"
            )
        try:
            deadline_s = monotonic() + patience_s
            if not self._one.acquire(timeout=patience_s):
                raise BusyError(
                    f"other requests took longer than {patience_s:g} s", "try again later"
                )
            try:
                waited_for: list[str] = []
                with host_lease(
                    "the report server, which computes an answer",
                    on_wait=waited_for.append,
                    give_up=lambda: monotonic() >= deadline_s,
                ) as is_held:
                    if not is_held:
                        raise BusyError(
                            "a measurement runs on this host, and an answer would disturb it"
                            + "".join(f": {what}" for what in waited_for),
                            "try again in a minute",
                        )
                    yield
            finally:
                self._one.release()
        finally:
            self._waiting.release()
