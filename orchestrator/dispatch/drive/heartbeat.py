"""Says what a silent sweep is doing: a slow model, a cooling phone and a hang look alike."""

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
"""Without any event for so long a person begins to wonder."""
_NAMED = 3
"""Devices a line names; the others are counted."""


class Heartbeat:
    """Passes events on, and tells of what runs and waits when none has come for a while."""

    def __init__(self, emit: Subscriber, clock: Callable[[], float]) -> None:
        """`clock` gives seconds of a monotonic clock."""
        self._emit = emit
        self._clock = clock
        self._last_s = clock()
        self._running: dict[str, tuple[str, float]] = {}

    def __call__(self, event: Event) -> None:
        """Takes an event on its way to the subscribers."""
        self._last_s = self._clock()
        if isinstance(event, RepeatStarted):
            label = f"{event.label}, repeat {event.repeat + 1}"
            self._running[event.device] = (label, self._last_s)
        elif isinstance(event, RepeatFinished):
            self._running.pop(event.device, None)
        self._emit(event)

    def beat(self, lanes: Iterable[Lane]) -> None:
        """Called often; speaks once a silent minute."""
        now_s = self._clock()
        if now_s - self._last_s < SILENT_S:
            return
        told = [f"{label} runs since {duration(now_s - s)}" for label, s in self._running.values()]
        told += [f"{lane.device} is waited for" for lane in lanes if lane.probe_at_s is not None]
        more = [f"{len(told) - _NAMED} more"] if len(told) > _NAMED else []
        said = "; ".join([*told[:_NAMED], *more]) or "nothing runs yet"
        self(Notice(level="info", message=f"nothing new for {duration(SILENT_S)}: {said}"))
