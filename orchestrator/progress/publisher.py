"""Hands every event to every subscriber; one that fails is logged and left out from then on."""

import logging
import threading
from collections.abc import Iterable

from fleetrank.orchestrator.progress.events import Event, Subscriber

_log = logging.getLogger(__name__)


class Publisher:
    """A `Subscriber` made of others; may be called from several threads."""

    def __init__(self, subscribers: Iterable[Subscriber]) -> None:
        self._subscribers = list(subscribers)
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Tells everybody; nothing a subscriber does reaches the sweep."""
        with self._lock:
            for subscriber in tuple(self._subscribers):
                try:
                    subscriber(event)
                except Exception:
                    self._subscribers.remove(subscriber)
                    _log.warning("progress display switched off: it failed", exc_info=True)
