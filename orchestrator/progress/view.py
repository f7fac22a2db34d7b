"""The state of a running sweep, updated event by event; pure. Consoles and files show it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fleetrank.foundation.vocabulary import Origin
from fleetrank.orchestrator.progress.events import (
    Event,
    ExportFinished,
    ExportStarted,
    RepeatFinished,
    RepeatStarted,
    SweepStarted,
)
from fleetrank.orchestrator.progress.wording import milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceView:
    """The state of one device while a sweep runs."""

    host: str = ""
    running: str | None = None
    last: str = ""
    n_done: int = 0
    n_failed: int = 0
    origin: Origin = Origin.MEASURED


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """All values that a display shows; computed from events only, so that it can be tested."""

    n_repeats: int = 0
    n_done_before: int = 0
    n_done: int = 0
    n_failed: int = 0
    exporting: tuple[str, ...] = ()
    devices: Mapping[str, DeviceView] = field(default_factory=dict)
    measuring_since_s: float | None = None

    def eta_s(self, now_s: float) -> float | None:
        """Estimated seconds left, from the pace so far; `None` before the first repeat is done."""
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
        case RepeatStarted() | RepeatFinished():
            return after_repeats(view, [event], now_s)
        case _:
            return view


def after_repeats(
    view: View, events: Sequence[RepeatStarted | RepeatFinished], now_s: float
) -> View:
    """The view after many events; copies the fleet only once."""
    devices = dict(view.devices)
    n_done = n_failed = 0
    since_s = view.measuring_since_s
    for event in events:
        device = devices.get(event.device, DeviceView())
        if isinstance(event, RepeatStarted):
            since_s = now_s if since_s is None else since_s
            running = f"{event.label} #{event.repeat + 1}"
            devices[event.device] = replace(
                device, host=event.host, running=running, origin=event.origin
            )
        else:
            devices[event.device] = after = _after_repeat(device, event)
            n_done += after.n_done - device.n_done
            n_failed += after.n_failed - device.n_failed
    return replace(
        view,
        devices=devices,
        n_done=view.n_done + n_done,
        n_failed=view.n_failed + n_failed,
        measuring_since_s=since_s,
    )


def _after_repeat(device: DeviceView, event: RepeatFinished) -> DeviceView:
    is_ok = event.error is None
    last = "failed"
    if is_ok:
        last = "-" if event.latency_p50_ns is None else milliseconds(event.latency_p50_ns)
    return DeviceView(
        host=event.host,
        running=None,
        last=last,
        n_done=device.n_done + is_ok,
        n_failed=device.n_failed + int(not is_ok and not event.will_retry),
        origin=event.origin,
    )
