"""The state of the dispatcher: frozen values and the pure functions that change them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from fleetrank.orchestrator.identity.cells import Attempt, Repeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An attempt that must not start before `ready_s` on the controller's clock."""

    attempt: Attempt
    ready_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One device and its pending attempts. A lane runs at most one repeat at a time.

    Attributes:
        host: the host it is attached to, with other devices.
        needs_quiet: a measurement on this device needs the whole host.
        fresh: the next attempt from the plan; the controller fills it again after use.
        retries: attempts in back-off.
        turn: when it was last served; the lane of a host that waited longest goes first.
        n_started: attempts started on it in this run.
        n_failures_in_a_row: failures that the device may have caused.
        probe_at_s: when a device that is set aside is probed next; `None` while it is in use.
        n_probes: unanswered probes since it was set aside.
        host_until_s: its host is unavailable and is waited for until then; `None` otherwise.
        is_given_up: no probe was answered; its pending attempts are left to a resume.
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
        """Whether an attempt is in flight or pending on it."""
        waits = self.fresh is not None or bool(self.retries)
        return self.running is not None or (waits and not self.is_given_up)

    def next_ready(self, now_s: float) -> Attempt | None:
        """Returns what it would run now: a retry whose back-off is over, else the plan's next."""
        if self.running is not None or self.probe_at_s is not None or self.is_given_up:
            return None
        due = [waiting for waiting in self.retries if waiting.ready_s <= now_s]
        return min(due, key=lambda waiting: waiting.ready_s).attempt if due else self.fresh


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchState:
    """Every lane, and whether new work may start.

    Attributes:
        lanes: the lanes by device name.
        turn: number of attempts started so far.
        is_stopping: running attempts may finish; no new one starts.
    """

    lanes: Mapping[str, Lane]
    turn: int = 0
    is_stopping: bool = False

    @property
    def is_over(self) -> bool:
        """Whether nothing is in flight and no further attempt may start."""
        lanes = self.lanes.values()
        if any(lane.running is not None for lane in lanes):
            return False
        return self.is_stopping or not any(lane.has_work for lane in lanes)


def with_lane(state: DispatchState, changed: Lane) -> DispatchState:
    """Returns the state with one lane replaced."""
    lanes = {**state.lanes, changed.device: changed}
    # Called twice for every repeat; `replace` would take three times as long.
    return DispatchState(lanes=lanes, turn=state.turn, is_stopping=state.is_stopping)


def started(state: DispatchState, device: str, attempt: Attempt) -> DispatchState:
    """Returns the state after a device started one of its pending attempts."""
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
    """Returns the state without the pending attempts of a device that must not start any more."""
    lane = state.lanes[device]
    fresh = lane.fresh
    changed = replace(
        lane,
        fresh=None if fresh is not None and is_done(fresh.repeat) else fresh,
        retries=tuple(w for w in lane.retries if not is_done(w.attempt.repeat)),
    )
    return with_lane(state, changed)


def stopping(state: DispatchState) -> DispatchState:
    """Returns the state after a request to stop the sweep."""
    return replace(state, is_stopping=True)


def next_moment_s(lanes: Iterable[Lane], now_s: float) -> float | None:
    """Returns when the next retry or probe is due; `None` if no retry and no probe is due.

    A past moment is ignored: its retry or probe waits for a busy host, and asking again at once
    would be a busy loop during a measurement.
    """
    moments = [
        moment
        for lane in lanes
        if not lane.is_given_up
        for moment in (lane.probe_at_s, *(waiting.ready_s for waiting in lane.retries))
        if moment is not None and moment > now_s
    ]
    return min(moments, default=None)
