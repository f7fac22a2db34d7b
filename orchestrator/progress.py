"""Sends the events of a sweep to subscribers.

Only subscribers print: a live table on a terminal, or lines in a pipe or a log file.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any, TextIO

from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.plain_data import read_json_object
from fleetrank.foundation.strict_json import json_text
from fleetrank.foundation.wording import duration
from fleetrank.orchestrator.progress_events import (
    DeviceWaits,
    Event,
    RepeatFinished,
    SweepStarted,
    decided,
)
from fleetrank.orchestrator.progress_view import View, updated
from fleetrank.orchestrator.progress_words import printable, sentence

Subscriber = Callable[[Event], None]
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


def read_decisions(path: Path) -> list[dict[str, Any]]:
    """The last looks of a sweep until decided, as `DecisionsMade`; empty without a file."""
    try:
        found = read_json_object(path)["decisions"]
        looks = [dict(one) for one in found] if isinstance(found, list) else []
        for look in looks:
            decided(look)
    except (BadFileError, KeyError, TypeError, ValueError, AttributeError):
        return []
    return looks


class JsonLines:
    """Writes each event as `{"event": "RepeatFinished", ...}`; fields as in `progress`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, event: Event) -> None:
        """Writes and flushes, so that a reader of the pipe gets each event at once."""
        content = {"event": type(event).__name__, **asdict(event)}
        self._stream.write(json_text(content) + "\n")
        self._stream.flush()


class PlainLines:
    """Writes one sentence per event; overwrites nothing and needs no terminal.

    While it measures, a line a minute says how long it takes against the plan's estimate, and of a
    large fleet what its devices do.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = perf_counter) -> None:
        self._stream = stream
        self._clock = clock
        self._n_done = 0
        self._view = View()
        self._said_s = 0.0

    def __call__(self, event: Event) -> None:
        """Writes the event's sentence, if there is one, and the progress if it is due."""
        now_s, was_measuring = self._clock(), self._view.measuring_since_s is not None
        self._view = updated(self._view, event, now_s)
        self._write(event)
        is_begun = self._view.measuring_since_s is not None and was_measuring
        is_news = isinstance(event, RepeatFinished | DeviceWaits)
        if not (is_begun or self._view.is_large):
            self._said_s = now_s
        elif is_news and now_s - self._said_s >= _HEARTBEAT_S:
            self._said_s = now_s
            self._stream.write(f"{pace(self._view, now_s)}\n")
            self._stream.flush()

    def _write(self, event: Event) -> None:
        if isinstance(event, SweepStarted):
            self._n_done = event.n_done
        # Of a large fleet the line of each minute counts those that wait.
        is_counted = isinstance(event, DeviceWaits) and self._view.is_large
        line = None if is_counted else sentence(event)
        if isinstance(event, RepeatFinished):
            self._n_done += not event.will_retry
        if line is None:
            return
        if isinstance(event, RepeatFinished):
            line = f"{self._n_done}/{self._view.n_repeats}  {line}"
        self._stream.write(f"{self._view.labels.said(line)}\n")
        self._stream.flush()


_HEARTBEAT_S = 60.0
"""Between two lines about the progress: seldom enough for the log of a long sweep."""


def pace(view: View, now_s: float) -> str:
    """The time since the start and the time left, against the plan's estimate; a large fleet."""
    elapsed_s = 0.0 if view.started_s is None else now_s - view.started_s
    n_done = view.n_done_before + view.n_done + view.n_failed
    text = f"progress: {n_done} of {view.n_repeats} repeats after {duration(elapsed_s)}"
    if (left_s := view.eta_s(now_s)) is not None:
        text += f", about {duration(left_s)} left"
    if view.estimate_s is not None:
        text += f" (the plan estimated {duration(view.estimate_s)})"
    return "; ".join([text, *map(printable, view.fleet_lines() if view.is_large else ())])
