"""Progress in a pipe or a log file: one line per event, with a counter."""

from dataclasses import asdict
from typing import TextIO

from fleetrank.foundation.strict_json import json_text
from fleetrank.orchestrator.progress.events import Event, RepeatFinished, SweepStarted
from fleetrank.orchestrator.progress.wording import sentence


class JsonLines:
    """Writes each event as `{"event": "RepeatFinished", ...}`; fields as in `events`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, event: Event) -> None:
        """Writes and flushes, so that a reader of the pipe gets each event at once."""
        content = {"event": type(event).__name__, **asdict(event)}
        self._stream.write(json_text(content) + "\n")
        self._stream.flush()


class PlainLines:
    """Writes one sentence per event; overwrites nothing and needs no terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._n_repeats = 0
        self._n_done = 0

    def __call__(self, event: Event) -> None:
        """Writes the event's sentence, if there is one."""
        if isinstance(event, SweepStarted):
            self._n_repeats, self._n_done = event.n_repeats, event.n_done
        line = sentence(event)
        if line is None:
            return
        if isinstance(event, RepeatFinished):
            self._n_done += not event.will_retry
            line = f"[{self._n_done}/{self._n_repeats}] {line}"
        self._stream.write(line + "\n")
        self._stream.flush()
