"""The state of a running sweep, updated event by event; pure. Consoles and files show it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fleetrank.analysis.labels import Labels, labels_of
from fleetrank.foundation.vocabulary import Origin
from fleetrank.orchestrator.fleet_state import MOST_LISTED, DeviceProgress, fleet_lines
from fleetrank.orchestrator.progress_events import (
    DecisionsMade,
    DeviceWaits,
    Event,
    ExportFinished,
    ExportStarted,
    PhaseStarted,
    PowerCycled,
    RepeatFinished,
    RepeatStarted,
    SweepStarted,
)
from fleetrank.orchestrator.progress_words import milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceView:
    """The state of one device while a sweep runs.

    Attributes:
        waits: why it cannot be measured now; `None` while it can.
        waits_since_s: on the display's clock.
        power: what happened when its power was switched.
    """

    host: str = ""
    running: str | None = None
    waits: str | None = None
    waits_since_s: float | None = None
    last: str = ""
    n_done: int = 0
    n_failed: int = 0
    origin: Origin = Origin.MEASURED
    state: DeviceProgress = DeviceProgress.PENDING
    power: tuple[str, ...] = ()


_UNNAMED = Labels({})


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """All values that a display shows; computed from events only, so that it can be tested."""

    n_repeats: int = 0
    n_done_before: int = 0
    n_done: int = 0
    n_failed: int = 0
    phase: PhaseStarted | None = None
    n_steps_done: int = 0
    exporting: tuple[str, ...] = ()
    devices: Mapping[str, DeviceView] = field(default_factory=dict)
    started_s: float | None = None
    measuring_since_s: float | None = None
    estimate_s: float | None = None
    labels: Labels = _UNNAMED
    decisions: Mapping[str, DecisionsMade] = field(default_factory=dict)

    @property
    def is_large(self) -> bool:
        """Whether its devices are too many to list each."""
        return len(self.devices) > MOST_LISTED

    def fleet_lines(self) -> list[str]:
        """How many devices are in each state, and the reasons."""
        return fleet_lines((one.state, one.waits) for one in self.devices.values())

    def eta_s(self, now_s: float) -> float | None:
        """Seconds left of all phases: first the plan's estimate, then the pace of the repeats.

        `None` before the start, and without an estimate before the first repeat is done.
        """
        n_finished = self.n_done + self.n_failed
        if n_finished == 0 or self.measuring_since_s is None:
            if self.started_s is None or self.estimate_s is None:
                return None
            return max(0.0, self.estimate_s - (now_s - self.started_s))
        n_left = self.n_repeats - self.n_done_before - n_finished
        return (now_s - self.measuring_since_s) / n_finished * max(0, n_left)


def updated(view: View, event: Event, now_s: float) -> View:
    """The view after an event."""
    changes: dict[str, Any] = {}
    match event:
        case SweepStarted():
            changes = {
                "n_repeats": event.n_repeats,
                "n_done_before": event.n_done,
                "started_s": now_s,
                "estimate_s": event.estimate_s,
                "labels": labels_of(event.platforms),
            }
        case PhaseStarted():
            changes = {"phase": event, "n_steps_done": 0}
        case DecisionsMade():
            changes = {
                "decisions": {**view.decisions, event.contest: event},
                "n_repeats": view.n_repeats + event.n_repeats,
            }
        case PowerCycled():
            device = view.devices.get(event.device, DeviceView(host=event.host))
            after = replace(device, power=(*device.power, event.text))
            changes = {"devices": {**view.devices, event.device: after}}
        case ExportStarted():
            changes = {"exporting": (*view.exporting, event.label)}
        case ExportFinished():
            left = tuple(name for name in view.exporting if name != event.label)
            changes = {"exporting": left, "n_steps_done": view.n_steps_done + 1}
        case RepeatStarted() | RepeatFinished() | DeviceWaits():
            return after_repeats(view, [event], now_s)
    return replace(view, **changes)


def after_repeats(
    view: View, events: Sequence[RepeatStarted | RepeatFinished | DeviceWaits], now_s: float
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
                device,
                host=event.host,
                running=running,
                origin=event.origin,
                waits=None,
                waits_since_s=None,
                state=DeviceProgress.MEASURING,
            )
        elif isinstance(event, DeviceWaits):
            devices[event.device] = replace(
                device,
                host=event.host,
                running=None,
                waits=event.reason,
                waits_since_s=now_s - event.waited_s,
                state=_state_of(event),
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
        phase=view.phase if since_s is None else None,
    )


def _state_of(event: DeviceWaits) -> DeviceProgress:
    if event.is_left_out:
        return DeviceProgress.LEFT_OUT
    return DeviceProgress.SET_ASIDE if event.limit_s is None else DeviceProgress.WAITING


def _after_repeat(device: DeviceView, event: RepeatFinished) -> DeviceView:
    is_ok = event.error is None
    last = milliseconds(event.latency_p50_ns) if is_ok else "failed"
    return DeviceView(
        power=device.power,
        host=event.host,
        last=last,
        n_done=device.n_done + int(is_ok and not event.will_retry),
        n_failed=device.n_failed + int(not is_ok and not event.will_retry),
        origin=event.origin,
    )
