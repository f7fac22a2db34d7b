"""The live table of a running sweep on a terminal."""

from collections.abc import Callable
from time import perf_counter

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fleetrank.analysis.tables.values import MISSING
from fleetrank.foundation.wording import count_of, duration
from fleetrank.orchestrator.progress_events import (
    Event,
    ExportFinished,
    Notice,
    PhaseStarted,
    PowerCycled,
    RepeatFinished,
    SweepFinished,
    SweepStarted,
)
from fleetrank.orchestrator.progress_view import DeviceView, View, updated
from fleetrank.orchestrator.progress_words import printable, sentence, unreal, waiting

_MAX_DEVICES_SHOWN = 20
"""Maximum devices on screen; the busiest are shown and the others are counted."""


_KEPT = SweepStarted | PowerCycled | Notice | SweepFinished


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
        if (is_failure or isinstance(event, _KEPT)) and (line := sentence(event)) is not None:
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
    for title in (*(["host"] if has_hosts else []), "device", "running", "last", "done", "failed"):
        table.add_column(
            title, overflow="ellipsis", no_wrap=True, ratio=1 if title == "running" else None
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
    if view.is_large:
        hidden += [Text(printable(line)) for line in view.fleet_lines()]
    phase = [] if view.phase is None else [Text(_phase(view.phase, view))]
    looks = [Text(printable(one.text)) for one in view.decisions.values()][:_MAX_DEVICES_SHOWN]
    return Group(*phase, *([table] if view.devices else []), *hidden, *looks, _totals(view, now_s))


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
