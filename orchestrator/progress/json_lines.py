"""Progress for programs: one JSON object a line."""

from dataclasses import asdict
from typing import TextIO

from fleetrank.foundation.strict_json import json_text
from fleetrank.orchestrator.progress.events import Event


class JsonLines:
    """Writes each event as `{"event": "RepeatFinished", ...}`; fields as in `events`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, event: Event) -> None:
        """Writes and flushes, so that a reader at the other end of a pipe is never behind."""
        content = {"event": type(event).__name__, **asdict(event)}
        self._stream.write(json_text(content) + "\n")
        self._stream.flush()
