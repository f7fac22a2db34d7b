"""Decides what a result or a probe means for a device and its repeat; pure functions."""

from dataclasses import dataclass, replace

from fleetrank.device_agents.contract.measurement import Failure, Wait
from fleetrank.foundation.vocabulary import ErrorKind
from fleetrank.orchestrator.dispatch.decide.lane import Lane, Rest, Waiting
from fleetrank.orchestrator.dispatch.decide.power import is_lost
from fleetrank.orchestrator.identity import Attempt

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
        n_lost_in_a_row=_lost_in_a_row(lane, failure, is_last=not running),
        probe_at_s=now_s + delay_s(rules, 0, jitter) if is_aside else lane.probe_at_s,
    )
    return lane, will_retry


def _lost_in_a_row(lane: Lane, failure: Failure | None, *, is_last: bool = True) -> int:
    if failure is not None and is_lost(failure):
        return lane.n_lost_in_a_row + is_last
    is_unknown = failure is not None and failure.kind in _NOT_THE_DEVICE
    return lane.n_lost_in_a_row if is_unknown else 0


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


def after_join(lane: Lane, now_s: float) -> Lane:
    """Returns the lane of a device that was given up and whose host has joined: it is probed."""
    return replace(lane, is_given_up=False, probe_at_s=now_s, n_probes=0, awaited_until_s=None)


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
    lane = replace(lane, is_probing=False, n_lost_in_a_row=_lost_in_a_row(lane, failure))
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
