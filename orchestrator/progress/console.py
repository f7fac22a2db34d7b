"""Progress on a terminal: a live table of devices, with failures and notices scrolling above."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from orchestrator.progress.events import (
    Event,
    ExportFinished,
    ExportStarted,
    Notice,
    RepeatFinished,
    RepeatStarted,
    SweepFinished,
    SweepStarted,
)
from orchestrator.progress.wording import duration, milliseconds, printable, sentence

_MAX_DEVICES_SHOWN = 20
"""A fleet of hundreds does not fit a screen; the busiest are shown, the rest is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceView:
    """What the table says about one device."""

    running: str | None = None
    last: str = ""
    n_done: int = 0
    n_failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """All that the display shows; made from events only, so that it can be tested."""

    n_repeats: int = 0
    n_done_before: int = 0
    n_done: int = 0
    n_failed: int = 0
    exporting: tuple[str, ...] = ()
    devices: tuple[tuple[str, DeviceView], ...] = ()
    measuring_since_s: float | None = None

    def eta_s(self, now_s: float) -> float | None:
        """Seconds left, from the pace so far; `None` before the first repeat is done."""
        n_finished = self.n_done + self.n_failed
        if self.measuring_since_s is None or n_finished == 0:
            return None
        n_left = self.n_repeats - self.n_done_before - n_finished
        return (now_s - self.measuring_since_s) / n_finished * max(0, n_left)


def updated(view: View, event: Event, now_s: float) -> View:
    """The view after an event."""
    match event:
        case SweepStarted():
            return replace(view, n_repeats=event.n_repeats, n_done_before=event.n_done)
        case ExportStarted():
            name = f"{event.model} to {event.format}"
            return replace(view, exporting=(*view.exporting, name))
        case ExportFinished():
            name = f"{event.model} to {event.format}"
            return replace(view, exporting=tuple(n for n in view.exporting if n != name))
        case RepeatStarted():
            since_s = now_s if view.measuring_since_s is None else view.measuring_since_s
            running = f"{event.label} #{event.repeat + 1}"
            view = replace(view, measuring_since_s=since_s)
            return _with_device(view, event.device, lambda device: replace(device, running=running))
        case RepeatFinished():
            return _after_repeat(view, event)
        case _:
            return view


class LiveConsole:
    """Draws the view of what has happened; failures and notices stay as lines above it."""

    def __init__(self, console: Console, clock: Callable[[], float] = perf_counter) -> None:
        self._console = console
        self._clock = clock
        self._view = View()
        self._live: Live | None = None

    def __call__(self, event: Event) -> None:
        """Takes an event in; the display itself is redrawn four times a second."""
        self._view = updated(self._view, event, self._clock())
        if isinstance(event, SweepStarted):
            self._live = Live(
                console=self._console, get_renderable=self._render, refresh_per_second=4
            )
            self._live.start()
        if _stays_visible(event):
            self._console.print(Text(sentence(event) or ""))
        if isinstance(event, SweepFinished):
            self.close()

    def close(self) -> None:
        """Gives the terminal back, whatever happened."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _render(self) -> Group:
        return render(self._view, self._clock())


def render(view: View, now_s: float) -> Group:
    """The table of devices and the line of totals."""
    table = Table(box=None, pad_edge=False)
    for heading in ("device", "running", "last", "done", "failed"):
        table.add_column(heading, overflow="ellipsis", no_wrap=True)
    busy_first = sorted(view.devices, key=lambda item: item[1].running is None)
    for name, device in busy_first[:_MAX_DEVICES_SHOWN]:
        table.add_row(
            Text(name),
            Text(printable(device.running or "-")),
            Text(device.last),
            str(device.n_done),
            str(device.n_failed),
        )
    n_hidden = len(view.devices) - _MAX_DEVICES_SHOWN
    hidden = [Text(f"and {n_hidden} more devices")] if n_hidden > 0 else []
    exporting = [Text(f"exporting {', '.join(view.exporting)}")] if view.exporting else []
    return Group(*exporting, *([table] if view.devices else []), *hidden, _totals(view, now_s))


def _totals(view: View, now_s: float) -> Text:
    n_done = view.n_done_before + view.n_done
    left = view.n_repeats - n_done - view.n_failed
    eta_s = view.eta_s(now_s)
    eta = "" if eta_s is None else f", about {duration(eta_s)} left"
    return Text(
        f"{n_done} of {view.n_repeats} repeats done, {view.n_failed} failed, {left} to go{eta}"
    )


def _stays_visible(event: Event) -> bool:
    is_failure = isinstance(event, RepeatFinished | ExportFinished) and event.error is not None
    return is_failure or isinstance(event, SweepStarted | Notice | SweepFinished)


def _after_repeat(view: View, event: RepeatFinished) -> View:
    is_ok = event.error is None
    n_failed = int(not is_ok and not event.will_retry)
    last = "failed"
    if is_ok:
        last = "-" if event.latency_p50_ns is None else milliseconds(event.latency_p50_ns)
    view = replace(view, n_done=view.n_done + is_ok, n_failed=view.n_failed + n_failed)
    return _with_device(
        view,
        event.device,
        lambda device: replace(
            device,
            running=None,
            last=last,
            n_done=device.n_done + is_ok,
            n_failed=device.n_failed + n_failed,
        ),
    )


def _with_device(view: View, name: str, change: Callable[[DeviceView], DeviceView]) -> View:
    devices = dict(view.devices)
    devices[name] = change(devices.get(name, DeviceView()))
    return replace(view, devices=tuple(devices.items()))
