"""Decides what a result or a probe means for a device and its repeat; pure functions."""

from dataclasses import dataclass, replace

from fleetrank.device_agents.contract.measurement import Failure, Wait
from fleetrank.foundation.vocabulary import ErrorKind
from fleetrank.orchestrator.identity import Attempt

# A lane: one device with its pending attempts, as a frozen value.

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
        if self.is_given_up:
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


_NOT_THE_DEVICE = frozenset(
    {
        ErrorKind.BAD_ARTIFACT,
        ErrorKind.UNSUPPORTED,
        ErrorKind.WRONG_OUTPUT,
        ErrorKind.EXPORT_FAILED,
        ErrorKind.VERIFICATION_FAILED,
        ErrorKind.INTERRUPTED,
        ErrorKind.DISK_FULL,
        ErrorKind.HOST_LOST,
    }
)
"""Failures that do not count against the device's health."""

_THE_CELL = frozenset(
    {
        ErrorKind.BAD_ARTIFACT,
        ErrorKind.UNSUPPORTED,
        ErrorKind.WRONG_OUTPUT,
        ErrorKind.OUT_OF_MEMORY,
        ErrorKind.TIMED_OUT,
    }
)
"""Failures that every repeat of the cell would have.

Not included: a crash can be random and is cheap to retry; a missing library, a lost device, a full
disk and a requested stop are not caused by the cell; a failed export never reaches a device.
"""

_HOST_PROBE_S = 1.0
"""Probing an unavailable host costs nothing, because the list of hosts is kept anyway."""


_LEAST_PAUSE_S = 0.5
"""A device that asks for no pause must not keep its host busy with questions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRules:
    """Limits for retries, and for setting a device aside.

    Attributes:
        max_attempts: attempts at one repeat, at least 1.
        host_wait_s: how long an unavailable host is waited for before its devices are given up.
        first_delay_s: delay before the second attempt; doubles with each further attempt.
        max_delay_s: longest back-off and longest pause between two probes.
        failures_to_set_aside: after this many failed repeats in a row a device is set aside.
        max_probes: after this many unanswered probes a device is given up.
    """

    max_attempts: int
    host_wait_s: float
    first_delay_s: float = 0.5
    max_delay_s: float = 30.0
    failures_to_set_aside: int = 3
    max_probes: int = 5


def delay_s(rules: RetryRules, n_before: int, jitter: float) -> float:
    """Returns the back-off after `n_before` earlier attempts: 0.5 to 1.5 times the nominal delay.

    `jitter` is uniform in [0, 1), so that a thousand devices do not retry at the same moment.
    """
    # The exponent is bounded because 2.0**1100 overflows; the maximum delay is reached much
    # earlier.
    nominal_s = min(rules.max_delay_s, rules.first_delay_s * 2.0 ** min(n_before, 30))
    return nominal_s * (0.5 + jitter)


def after_result(
    lane: Lane,
    attempt: Attempt,
    failure: Failure | None,
    *,
    rules: RetryRules,
    now_s: float,
    jitter: float,
) -> tuple[Lane, bool]:
    """Returns the lane after the result of a running attempt, and whether it will be retried."""
    running = tuple(other for other in lane.running if other is not attempt)
    retries = lane.retries
    # A lost host returns its work; this does not count as an attempt.
    n_tries = attempt.n_tries + (not is_host_lost(failure))
    will_retry = failure is not None and failure.is_transient and n_tries < rules.max_attempts
    if will_retry:
        again = replace(attempt, number=attempt.number + 1, n_tries=n_tries)
        ready_s = now_s + delay_s(rules, attempt.n_tries, jitter)
        retries = (*retries, Waiting(attempt=again, ready_s=ready_s))
    n_failures, is_aside = lane.n_failures_in_a_row, False
    if failure is None:
        n_failures = 0
    elif failure.kind not in _NOT_THE_DEVICE:
        n_failures += 1
        is_aside = n_failures >= rules.failures_to_set_aside
    lane = replace(
        lane,
        running=running,
        running_since_s=lane.running_since_s if running else None,
        retries=retries,
        rest=lane.rest if running else None,
        n_failures_in_a_row=n_failures,
        probe_at_s=now_s + delay_s(rules, 0, jitter) if is_aside else lane.probe_at_s,
    )
    return lane, will_retry


def after_wait(
    lane: Lane, attempt: Attempt, wait: Wait, now_s: float, *, asked_s: float
) -> Lane | None:
    """Returns the lane at rest after its device asked for time; `None` if its time is over.

    Nothing was tried: the same attempt is sent again. The first wait counts from `asked_s`.
    """
    since_s, limit_s = asked_s, wait.limit_s
    if lane.rest is not None:
        since_s, limit_s = lane.rest.since_s, max(lane.rest.limit_s, wait.limit_s)
    left_s = since_s + limit_s - now_s
    if left_s <= 0:
        return None
    until_s = now_s + min(max(wait.ask_again_s, _LEAST_PAUSE_S), left_s)
    running = tuple(other for other in lane.running if other is not attempt)
    return replace(
        lane,
        running=running,
        running_since_s=lane.running_since_s if running else None,
        retries=(*lane.retries, Waiting(attempt=attempt, ready_s=until_s, asked_in=lane.turn)),
        n_started=lane.n_started - 1,
        rest=Rest(since_s=since_s, until_s=until_s, limit_s=limit_s),
    )


def is_host_lost(failure: Failure | None) -> bool:
    """Whether an attempt failed because its host is unavailable."""
    return failure is not None and failure.kind is ErrorKind.HOST_LOST


def after_host_loss(lane: Lane, rules: RetryRules, now_s: float) -> Lane:
    """Returns a lane of a host that stopped answering: it is set aside, and its host is waited for.

    It can take long until the first device answers. Until then nothing starts on the others.
    """
    if lane.awaited_until_s is not None or lane.is_given_up:
        return lane
    return replace(lane, probe_at_s=now_s, n_probes=0, awaited_until_s=now_s + rules.host_wait_s)


def condemns_cell(failure: Failure) -> bool:
    """Whether this failure ends every repeat of its cell, if the cell has no measured repeat yet.

    Otherwise a model that never returns would cost the time limit once for each repeat.
    """
    return failure.kind in _THE_CELL and not failure.is_transient


def after_probe(lane: Lane, failure: Failure | None, *, rules: RetryRules, now_s: float) -> Lane:
    """Returns the lane after a probe of a device that was set aside.

    A device that answers is used again; one more failure sets it aside again. A device whose host
    is unavailable is waited for as long as the host, and one that another user has as it says.
    """
    lane = replace(lane, is_probing=False)
    if lane.probe_at_s is None:
        return lane
    n_probes = lane.n_probes + 1
    wait = None if failure is None else failure.wait
    if lane.awaited_until_s is None and (is_host_lost(failure) or wait is not None):
        limit_s = rules.host_wait_s if wait is None else wait.limit_s
        lane = replace(lane, awaited_until_s=now_s + limit_s)
    if failure is None:
        # The host was unavailable, not the device, unless the device itself had failed before.
        n_failures = rules.failures_to_set_aside - 1
        if lane.awaited_until_s is not None:
            n_failures = min(n_failures, lane.n_failures_in_a_row)
        return replace(
            lane, probe_at_s=None, n_probes=0, awaited_until_s=None, n_failures_in_a_row=n_failures
        )
    is_over = n_probes >= rules.max_probes
    pause_s = delay_s(rules, n_probes, 0.5)
    if lane.awaited_until_s is not None:
        is_over = now_s >= lane.awaited_until_s
        pause_s = _HOST_PROBE_S if wait is None else max(_LEAST_PAUSE_S, wait.ask_again_s)
    if is_over:
        return replace(lane, probe_at_s=None, n_probes=n_probes, is_given_up=True)
    return replace(lane, probe_at_s=now_s + pause_s, n_probes=n_probes)
