"""A lane: one device with its pending attempts, as a frozen value."""

from dataclasses import dataclass, replace

from fleetrank.orchestrator.identity import Attempt

RepeatKey = tuple[str, int]
"""(cell key, 0-based repeat)."""


def key_of(attempt: Attempt) -> RepeatKey:
    """Returns the key of the repeat that an attempt belongs to."""
    return attempt.repeat.cell.cell_key, attempt.repeat.index


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An attempt that must not start before `ready_s` on the controller's clock.

    Attributes:
        asked_in: turn of the lane in which its device asked for time, or was disturbed; equal for
            the cells of a round, which start together again. `None` for a retry.
    """

    attempt: Attempt
    ready_s: float
    asked_in: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """A device that is not fit; seconds of the controller's clock.

    Attributes:
        since_s: when it first asked for time since it was last fit.
        until_s: nothing starts on it before.
        limit_s: the longest limit that one of its answers named; counts from `since_s`.
        is_measuring: it was asked again and has not answered at once, so its repeat runs.
    """

    since_s: float
    until_s: float
    limit_s: float
    is_measuring: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One device and its pending attempts. A lane runs one repeat at a time, or one round.

    Attributes:
        host: the host it is attached to, with other devices.
        needs_quiet: a measurement on this device needs the whole host.
        fresh: the next attempts from the plan, which start together: the cells of a round, or one
            attempt; filled again after use.
        retries: attempts in back-off; each starts alone, but for the cells of a round that asked
            for time.
        running: the attempts in flight.
        running_since_s: when they started; `None` if an earlier driver started them.
        turn: when it was last served; the lane of a host that waited longest goes first.
        n_started: attempts started on it in this run.
        rest: its attempt waits in `retries`, until it is asked again; `None` while it is fit.
        n_failures_in_a_row: failures that the device may have caused.
        probe_at_s: when a device that is set aside is probed next; `None` while it is in use.
        is_probing: a probe is in flight; a phone that hangs takes half a minute to fail.
        n_probes: unanswered probes since it was set aside.
        awaited_until_s: its host is unavailable, or another user has the device, and it is waited
            for until then; `None` otherwise.
        is_given_up: no probe was answered; its pending attempts are left to a resume.
        n_lost_in_a_row: attempts and probes that it did not answer; a round counts once.
        n_cycles: how often its unit was switched off and on in this run.
        is_cycling: its unit is switched off and on now.
    """

    device: str
    host: str
    needs_quiet: bool
    fresh: tuple[Attempt, ...] = ()
    retries: tuple[Waiting, ...] = ()
    running: tuple[Attempt, ...] = ()
    running_since_s: float | None = None
    turn: int = 0
    n_started: int = 0
    rest: Rest | None = None
    n_failures_in_a_row: int = 0
    probe_at_s: float | None = None
    is_probing: bool = False
    n_probes: int = 0
    awaited_until_s: float | None = None
    is_given_up: bool = False
    n_lost_in_a_row: int = 0
    n_cycles: int = 0
    is_cycling: bool = False

    @property
    def has_pending(self) -> bool:
        """Whether an attempt is pending that this device itself may start."""
        return not self.is_given_up and bool(self.fresh or self.retries)

    def next_ready(self, now_s: float) -> tuple[Attempt, ...]:
        """Returns what it would run now: a retry whose back-off is over, else the plan's next."""
        if self.running or self.probe_at_s is not None or self.is_given_up:
            return ()
        if self.rest is not None and now_s < self.rest.until_s:
            return ()
        due = [waiting for waiting in self.retries if waiting.ready_s <= now_s]
        if not due:
            return self.fresh
        first = min(due, key=lambda waiting: waiting.ready_s)
        if first.asked_in is None:
            return (first.attempt,)
        return tuple(waiting.attempt for waiting in due if waiting.asked_in == first.asked_in)

    def next_moment_s(self, now_s: float) -> float | None:
        """Returns when its next retry, probe or question is due; `None` if there is none.

        A past moment is ignored: its retry or probe waits for a busy host, and asking again at
        once would be a busy loop during a measurement.
        """
        if self.is_given_up or not (self.retries or self.rest or self.probe_at_s is not None):
            return None
        moments = [waiting.ready_s for waiting in self.retries]
        if self.probe_at_s is not None:
            moments.append(self.probe_at_s)
        if self.rest is not None:
            moments.append(self.rest.until_s)
        return min((moment for moment in moments if moment > now_s), default=None)


def started(lane: Lane, attempt: Attempt, turn: int, now_s: float | None) -> Lane:
    """Returns the lane after its device started one of its pending attempts."""
    retries = lane.retries
    if retries:
        retries = tuple(waiting for waiting in retries if waiting.attempt is not attempt)
    return replace(
        lane,
        running=(*lane.running, attempt),
        running_since_s=now_s,
        fresh=tuple(pending for pending in lane.fresh if pending is not attempt),
        retries=retries,
        turn=turn,
        n_started=lane.n_started + 1,
    )
