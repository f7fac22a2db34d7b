"""Progress as a small file, for whoever looks from another terminal or a browser."""

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

import orjson

from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.files import StorageError, replace_file
from fleetrank.foundation.plain_data import read_json_object
from fleetrank.orchestrator.progress.events import (
    Event,
    RepeatFinished,
    RepeatStarted,
    SweepFinished,
)
from fleetrank.orchestrator.progress.view import View, after_repeats, updated

_PAUSE_S = 1.0
"""At most one writing in so long: a fleet of a thousand devices has as many events a second."""


class ProgressFile:
    """Writes the view of what has happened after events, a few kilobytes without a sync.

    A subscriber of events; readers see a whole file or the one before. It is lost with a crash
    and made anew by a resume: what counts lies in the journal.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = monotonic) -> None:
        self._path = path
        self._clock = clock
        self._view = View()
        self._repeats: list[RepeatStarted | RepeatFinished] = []
        self._written_s: float | None = None

    def __call__(self, event: Event) -> None:
        """Takes an event in."""
        now_s = self._clock()
        if is_repeat := isinstance(event, RepeatStarted | RepeatFinished):
            self._repeats.append(event)
        else:
            self._view = updated(self._view, event, now_s)
        is_due = self._written_s is None or now_s - self._written_s >= _PAUSE_S
        if isinstance(event, SweepFinished) or (is_due and is_repeat):
            self._view = after_repeats(self._view, self._repeats, now_s)
            self._repeats = []
            self._written_s = now_s
            # A full disk is the journal's business.
            with contextlib.suppress(StorageError):
                self._write(now_s)

    def _write(self, now_s: float) -> None:
        content = {
            "written_utc": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds_left": self._view.eta_s(now_s),
            "devices": self._view.devices,
        }
        replace_file(self._path, orjson.dumps(content))


def read_progress(path: Path) -> dict[str, dict[str, object]]:
    """What each device was doing when the file was written, by device; empty without a file."""
    try:
        devices = read_json_object(path)["devices"]
    except (BadFileError, KeyError):
        return {}
    return dict(devices) if isinstance(devices, dict) else {}
