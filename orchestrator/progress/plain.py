"""Progress in a pipe or a log file: one line per thing that happened, with a counter."""

from typing import TextIO

from fleetrank.orchestrator.progress.events import Event, RepeatFinished, SweepStarted
from fleetrank.orchestrator.progress.wording import sentence


class PlainLines:
    """Writes a sentence per event; nothing is overwritten, nothing needs a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._n_repeats = 0
        self._n_done = 0

    def __call__(self, event: Event) -> None:
        """Writes the event's sentence, if it has one."""
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
