"""What the dispatcher knows: frozen values, changed only by the pure functions beside them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from fleetrank.orchestrator.identity.cells import Attempt, Repeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An attempt that has to wait: not before `ready_s` on the controller's clock."""

    attempt: Attempt
    ready_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One device and what waits for it. A lane is leased to one repeat at a time.

    Attributes:
        host: what it shares with the other devices on it.
        needs_quiet: measuring on this device needs the whole host for itself.
        fresh: the next attempt from the plan; the controller puts in the one after it.
        retries: attempts whose back-off runs.
        turn: when it was last served; the longest unserved lane of a host goes first.
        n_started: attempts it was given in this run.
        n_failures_in_a_row: failures that may be the device's own fault.
        probe_at_s: the device is set aside, and asked then whether it is well; `None` in service.
        n_probes: unanswered probes since it was set aside.
        host_until_s: its host has fallen silent, and is waited for until then; `None` else.
        is_given_up: no probe was ever answered; what waits for it is left to a resume.
    """

    device: str
    host: str
    needs_quiet: bool
    fresh: Attempt | None = None
    retries: tuple[Waiting, ...] = ()
    running: Attempt | None = None
    turn: int = 0
    n_started: int = 0
    n_failures_in_a_row: int = 0
    probe_at_s: float | None = None
    n_probes: int = 0
    host_until_s: float | None = None
    is_given_up: bool = False

    @property
    def has_work(self) -> bool:
        """Whether something runs on it or will."""
        waits = self.fresh is not None or bool(self.retries)
        return self.running is not None or (waits and not self.is_given_up)

    def next_ready(self, now_s: float) -> Attempt | None:
        """What it would run now: a retry whose back-off is over, else the next of the plan."""
        if self.running is not None or self.probe_at_s is not None or self.is_given_up:
            return None
        due = [waiting for waiting in self.retries if waiting.ready_s <= now_s]
        return min(due, key=lambda waiting: waiting.ready_s).attempt if due else self.fresh


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchState:
    """Every lane, and whether new work may start.

    Attributes:
        lanes: by device.
        turn: counts what was started so far.
        is_stopping: what runs is finished and nothing else begun.
    """

    lanes: Mapping[str, Lane]
    turn: int = 0
    is_stopping: bool = False

    @property
    def is_over(self) -> bool:
        """Nothing runs, and nothing is left that may be started."""
        lanes = self.lanes.values()
        if any(lane.running is not None for lane in lanes):
            return False
        return self.is_stopping or not any(lane.has_work for lane in lanes)


def with_lane(state: DispatchState, changed: Lane) -> DispatchState:
    """The state with one lane replaced."""
    lanes = {**state.lanes, changed.device: changed}
    # Twice for every repeat: `replace` would take three times as long.
    return DispatchState(lanes=lanes, turn=state.turn, is_stopping=state.is_stopping)


def started(state: DispatchState, device: str, attempt: Attempt) -> DispatchState:
    """The state after a device was given an attempt that waited for it."""
    lane = state.lanes[device]
    turn = state.turn + 1
    changed = replace(
        lane,
        running=attempt,
        fresh=None if lane.fresh == attempt else lane.fresh,
        retries=tuple(waiting for waiting in lane.retries if waiting.attempt != attempt),
        turn=turn,
        n_started=lane.n_started + 1,
    )
    return replace(state, lanes={**state.lanes, device: changed}, turn=turn)


def without(state: DispatchState, device: str, is_done: Callable[[Repeat], bool]) -> DispatchState:
    """The state when some of what waits for a device is not to be started any more."""
    lane = state.lanes[device]
    fresh = lane.fresh
    changed = replace(
        lane,
        fresh=None if fresh is not None and is_done(fresh.repeat) else fresh,
        retries=tuple(w for w in lane.retries if not is_done(w.attempt.repeat)),
    )
    return with_lane(state, changed)


def stopping(state: DispatchState) -> DispatchState:
    """The state after somebody asked to end the sweep."""
    return replace(state, is_stopping=True)


def next_moment_s(lanes: Iterable[Lane], now_s: float) -> float | None:
    """When the next back-off or probe is due; `None` when only a measurement can change things.

    A moment that is past is left out: what was due then waits for a busy host, and asking again
    at once would spin beside a measurement.
    """
    moments = [
        moment
        for lane in lanes
        if not lane.is_given_up
        for moment in (lane.probe_at_s, *(waiting.ready_s for waiting in lane.retries))
        if moment is not None and moment > now_s
    ]
    return min(moments, default=None)
