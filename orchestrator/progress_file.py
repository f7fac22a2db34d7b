"""Progress as a small file, read from another terminal or a browser."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

import orjson

from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.files import StorageError, replace_file
from fleetrank.foundation.plain_data import read_json_object
from fleetrank.orchestrator.progress_events import (
    DeviceWaits,
    Event,
    PowerCycled,
    RepeatFinished,
    RepeatStarted,
    SweepFinished,
)
from fleetrank.orchestrator.progress_view import View, after_repeats, updated
from fleetrank.orchestrator.progress_words import waiting

_PAUSE_S = 1.0
"""Minimum time between two writes: a fleet of a thousand devices has 1,000 events a second."""


class ProgressFile:
    """Writes the view of the sweep after events: a few kilobytes, without fsync.

    A subscriber of events. Readers see a complete file: the new or the previous one. A crash may
    lose the file and a resume rewrites it; the journal holds the results.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = monotonic) -> None:
        self._path = path
        self._clock = clock
        self._view = View()
        self._repeats: list[RepeatStarted | RepeatFinished | DeviceWaits] = []
        self._written_s: float | None = None

    def __call__(self, event: Event) -> None:
        """Processes an event."""
        now_s = self._clock()
        if is_repeat := isinstance(event, RepeatStarted | RepeatFinished | DeviceWaits):
            self._repeats.append(event)
        else:
            self._view = updated(self._view, event, now_s)
        is_due = self._written_s is None or now_s - self._written_s >= _PAUSE_S
        # The next event of a device that waits can be a minute away.
        is_news = isinstance(event, DeviceWaits) and (event.is_news or event.limit_s is None)
        is_rare = is_news or isinstance(event, PowerCycled | SweepFinished)
        if is_rare or (is_due and is_repeat):
            self._view = after_repeats(self._view, self._repeats, now_s)
            self._repeats = []
            self._written_s = now_s
            # The journal reports a full disk.
            with contextlib.suppress(StorageError):
                self._write(now_s)

    def _write(self, now_s: float) -> None:
        devices = {}
        for name, device in self._view.devices.items():
            # `asdict` would copy what is in them, for a thousand devices.
            stated = {one.name: getattr(device, one.name) for one in fields(device)}
            # How long it waits, because readers have another clock.
            del stated["waits_since_s"]
            since_s = device.waits_since_s
            devices[name] = stated | {"waited_s": None if since_s is None else now_s - since_s}
        content = {
            "written_utc": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds_left": self._view.eta_s(now_s),
            "devices": devices,
            "decisions": [asdict(one) for one in self._view.decisions.values()],
        }
        replace_file(self._path, orjson.dumps(content))


def read_progress(path: Path) -> dict[str, dict[str, object]]:
    """The state of each device when the file was written, by device; empty without a file."""
    try:
        devices = read_json_object(path)["devices"]
    except (BadFileError, KeyError):
        return {}
    return dict(devices) if isinstance(devices, dict) else {}


def waits_of(device: Mapping[str, object]) -> str | None:
    """Why and how long a device of `read_progress` waits, for a person; `None` if it does not."""
    reason, waited_s = device.get("waits"), device.get("waited_s")
    if not isinstance(reason, str) or not isinstance(waited_s, float):
        return None
    return waiting(reason, waited_s)
