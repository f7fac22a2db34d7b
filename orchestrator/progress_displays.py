"""The displays of progress: a live table on a terminal, or lines in a pipe or a log file."""

from collections.abc import Callable
from dataclasses import asdict
from time import perf_counter
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fleetrank.analysis.tables.formats import MISSING
from fleetrank.foundation.codec import json_text
from fleetrank.foundation.errors import count_of, duration
from fleetrank.orchestrator.progress import (
    DeviceView,
    Event,
    ExportFinished,
    Notice,
    PhaseStarted,
    RepeatFinished,
    SweepFinished,
    SweepStarted,
    View,
    printable,
    sentence,
    unreal,
    updated,
    waiting,
)


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

    While it measures, a line a minute says how long it takes against the plan's estimate.
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
        if self._view.measuring_since_s is None or not was_measuring:
            self._said_s = now_s
        elif isinstance(event, RepeatFinished) and now_s - self._said_s >= _HEARTBEAT_S:
            self._said_s = now_s
            self._stream.write(f"{pace(self._view, now_s)}\n")
            self._stream.flush()

    def _write(self, event: Event) -> None:
        if isinstance(event, SweepStarted):
            self._n_done = event.n_done
        line = sentence(event)
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
    """The time since the start and the time left, against the plan's estimate."""
    elapsed_s = 0.0 if view.started_s is None else now_s - view.started_s
    n_done = view.n_done_before + view.n_done + view.n_failed
    text = f"progress: {n_done} of {view.n_repeats} repeats after {duration(elapsed_s)}"
    if (left_s := view.eta_s(now_s)) is not None:
        text += f", about {duration(left_s)} left"
    planned = view.estimate_s
    return text if planned is None else f"{text} (the plan estimated {duration(planned)})"


_MAX_DEVICES_SHOWN = 20
"""Maximum devices on screen; the busiest are shown and the others are counted."""


class LiveConsole:
    """Draws the view of the sweep; failures and notices stay as lines above it."""

    def __init__(self, console: Console, clock: Callable[[], float] = perf_counter) -> None:
        self._console = console
        self._clock = clock
        self._view = View()
        self._live: Live | None = None

    def __call__(self, event: Event) -> None:
        """Processes an event; the display is redrawn four times a second."""
        self._view = updated(self._view, event, self._clock())
        if isinstance(event, SweepStarted):
            self._live = Live(
                console=self._console, get_renderable=self._render, refresh_per_second=4
            )
            self._live.start()
        is_failure = isinstance(event, RepeatFinished | ExportFinished) and event.error is not None
        is_kept = is_failure or isinstance(event, SweepStarted | Notice | SweepFinished)
        if is_kept and (line := sentence(event)) is not None:
            self._console.print(Text(self._view.labels.said(line)))
        if isinstance(event, SweepFinished):
            self.close()

    def close(self) -> None:
        """Restores the terminal, also after an error."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _render(self) -> Group:
        return render(self._view, self._clock())


def render(view: View, now_s: float) -> Group:
    """The table of devices and the line of totals."""
    # On a narrow terminal the column of the running cell is shortened first.
    table = Table(box=None, pad_edge=False, expand=True)
    hosts = {device.host for device in view.devices.values()}
    has_hosts = len(hosts) > 1
    for heading in (
        *(["host"] if has_hosts else []),
        "device",
        "running",
        "last",
        "done",
        "failed",
    ):
        table.add_column(
            heading, overflow="ellipsis", no_wrap=True, ratio=1 if heading == "running" else None
        )
    busy_first = sorted(
        view.devices.items(), key=lambda item: (item[1].running is None, item[1].waits is None)
    )
    for name, device in busy_first[:_MAX_DEVICES_SHOWN]:
        table.add_row(
            *([Text(device.host)] if has_hosts else []),
            Text(name + unreal(device.origin)),
            Text(view.labels.said(_doing(device, now_s))),
            Text(device.last),
            str(device.n_done),
            str(device.n_failed),
        )
    n_hidden = len(view.devices) - _MAX_DEVICES_SHOWN
    hidden = [Text(f"and {count_of(n_hidden, 'more device')}")] if n_hidden > 0 else []
    phase = [] if view.phase is None else [Text(_phase(view.phase, view))]
    return Group(*phase, *([table] if view.devices else []), *hidden, _totals(view, now_s))


def _phase(phase: PhaseStarted, view: View) -> str:
    """What the driver does before it measures, as `exporting 3 of 6: resnet18 to onnx`."""
    if not phase.n_steps:
        return phase.name
    number = min(view.n_steps_done + 1, phase.n_steps)
    files = f": {', '.join(view.exporting)}" if view.exporting else ""
    return f"{phase.name} {number} of {phase.n_steps}{files}"


def _doing(device: DeviceView, now_s: float) -> str:
    """What a device does now: measures, waits for a reason, or nothing."""
    if device.waits is not None and device.waits_since_s is not None:
        return waiting(device.waits, now_s - device.waits_since_s)
    return printable(device.running or MISSING)


def _totals(view: View, now_s: float) -> Text:
    n_done = view.n_done_before + view.n_done
    left = view.n_repeats - n_done - view.n_failed
    eta_s = view.eta_s(now_s) if left else None
    # An estimate that is used up says nothing.
    eta = "" if not eta_s else f", about {duration(eta_s)} left"
    of_all = count_of(view.n_repeats, "repeat")
    return Text(f"{n_done} of {of_all} done, {view.n_failed} failed, {left} to go{eta}")
