"""Whose turn it is to compute: one computation of the server at a time, none beside a measurement.

Looking at a file that grew is no computation; making a page or answering SQL is, and would be seen
in the latency of what is measured on this host meanwhile.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from fleetrank.device_agents.host.host_lease import host_lease
from fleetrank.orchestrator.server.errors import BusyError

_MAX_WAITING = 24
"""Each holds one of the server's 40 threads; more than that should hear of it and come again."""


class Turn:
    """The right to compute; asked by many threads."""

    def __init__(self, *, max_waiting: int = _MAX_WAITING) -> None:
        self._waiting = threading.BoundedSemaphore(max_waiting)
        self._one = threading.Lock()

    @contextmanager
    def take(self, patience_s: float) -> Iterator[None]:
        """Computes in the block, after waiting for at most `patience_s`.

        Raises:
            BusyError: too many wait, or it is not our turn in time.
        """
        if not self._waiting.acquire(blocking=False):
            raise BusyError("too many questions wait to be computed", "ask again in a few seconds")
        try:
            deadline_s = monotonic() + patience_s
            if not self._one.acquire(timeout=patience_s):
                raise BusyError(
                    f"other questions took longer than {patience_s:g} s", "ask again later"
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
                            "this host measures, and computing an answer would disturb it"
                            + "".join(f": {what}" for what in waited_for),
                            "ask again in a minute",
                        )
                    yield
            finally:
                self._one.release()
        finally:
            self._waiting.release()
