"""Reports what runs when a sweep has no output: a slow model and a hang look the same."""

from collections.abc import Callable, Iterable

from fleetrank.orchestrator.dispatch.decide.state import Lane
from fleetrank.orchestrator.progress.events import (
    Event,
    Notice,
    RepeatFinished,
    RepeatStarted,
    Subscriber,
)
from fleetrank.orchestrator.progress.wording import duration

SILENT_S = 60.0
"""Longer than this without output looks like a hang."""
_NAMED = 3
"""Number of devices that one line names; the others are counted."""


class Heartbeat:
    """Forwards events; reports running and waiting devices after a minute without an event."""

    def __init__(self, emit: Subscriber, clock: Callable[[], float]) -> None:
        """`clock` gives seconds of a monotonic clock."""
        self._emit = emit
        self._clock = clock
        self._last_s = clock()
        self._running: dict[str, tuple[str, float]] = {}

    def __call__(self, event: Event) -> None:
        """Forwards an event to the subscribers."""
        self._last_s = self._clock()
        if isinstance(event, RepeatStarted):
            label = f"{event.label}, repeat {event.repeat + 1},"
            self._running[event.device] = (label, self._last_s)
        elif isinstance(event, RepeatFinished):
            self._running.pop(event.device, None)
        self._emit(event)

    def beat(self, lanes: Iterable[Lane]) -> None:
        """Emits a notice after each minute without an event; call it often."""
        now_s = self._clock()
        if now_s - self._last_s < SILENT_S:
            return
        lines = [
            f"{device} has been running {label} for {duration(now_s - since_s)}"
            for device, (label, since_s) in self._running.items()
        ]
        lines += [f"waiting for {lane.device}" for lane in lanes if lane.probe_at_s is not None]
        more = [f"{len(lines) - _NAMED} more"] if len(lines) > _NAMED else []
        text = "; ".join([*lines[:_NAMED], *more]) or "no repeat has started yet"
        self(Notice(level="info", message=f"no output for {duration(SILENT_S)}; {text}"))
