"""What is known of a running sweep, event by event: pure; consoles and files show it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from orchestrator.progress.events import (
    Event,
    ExportFinished,
    ExportStarted,
    RepeatFinished,
    RepeatStarted,
    SweepStarted,
)
from orchestrator.progress.wording import milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceView:
    """What is known of one device while a sweep runs."""

    host: str = ""
    running: str | None = None
    last: str = ""
    n_done: int = 0
    n_failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """All that a display shows; made from events only, so that it can be tested."""

    n_repeats: int = 0
    n_done_before: int = 0
    n_done: int = 0
    n_failed: int = 0
    exporting: tuple[str, ...] = ()
    devices: Mapping[str, DeviceView] = field(default_factory=dict)
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
            running = f"{event.label} #{event.repeat + 1}"
            if view.measuring_since_s is None:
                view = replace(view, measuring_since_s=now_s)
            device = view.devices.get(event.device, DeviceView())
            changed = replace(device, host=event.host, running=running)
            return replace(view, devices={**view.devices, event.device: changed})
        case RepeatFinished():
            return _after_repeat(view, event)
        case _:
            return view


def _after_repeat(view: View, event: RepeatFinished) -> View:
    is_ok = event.error is None
    n_failed = int(not is_ok and not event.will_retry)
    last = "failed"
    if is_ok:
        last = "-" if event.latency_p50_ns is None else milliseconds(event.latency_p50_ns)
    device = view.devices.get(event.device, DeviceView())
    changed = DeviceView(
        host=event.host,
        running=None,
        last=last,
        n_done=device.n_done + is_ok,
        n_failed=device.n_failed + n_failed,
    )
    return replace(
        view,
        n_done=view.n_done + is_ok,
        n_failed=view.n_failed + n_failed,
        devices={**view.devices, event.device: changed},
    )
