"""Sends every event to every subscriber; a failing subscriber is logged and removed."""

import logging
import threading
from collections.abc import Iterable

from fleetrank.orchestrator.progress.events import Event, Subscriber

_log = logging.getLogger(__name__)


class Publisher:
    """A `Subscriber` that forwards to others; may be called from several threads."""

    def __init__(self, subscribers: Iterable[Subscriber]) -> None:
        self._subscribers = list(subscribers)
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Forwards the event; an error in a subscriber does not reach the sweep."""
        with self._lock:
            for subscriber in tuple(self._subscribers):
                try:
                    subscriber(event)
                except Exception:
                    self._subscribers.remove(subscriber)
                    _log.warning("progress display switched off: it failed", exc_info=True)
