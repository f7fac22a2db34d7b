"""Decides what a result means for its repeat and its device; pure functions."""

from dataclasses import dataclass, replace

from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.foundation.vocabulary import ErrorKind
from fleetrank.orchestrator.dispatch.decide.state import DispatchState, Lane, Waiting, with_lane

_NOT_THE_DEVICE = frozenset(
    {
        ErrorKind.BAD_ARTIFACT,
        ErrorKind.UNSUPPORTED,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRules:
    """Limits for retries, and for setting a device aside.

    Attributes:
        max_attempts: attempts at one repeat, at least 1.
        first_delay_s: delay before the second attempt; doubles with each further attempt.
        max_delay_s: longest back-off and longest pause between two probes.
        failures_to_set_aside: after this many failed repeats in a row a device is set aside.
        max_probes: after this many unanswered probes a device is given up.
        host_wait_s: how long an unavailable host is waited for before its devices are given up.
    """

    max_attempts: int
    first_delay_s: float = 0.5
    max_delay_s: float = 30.0
    failures_to_set_aside: int = 3
    max_probes: int = 5
    host_wait_s: float = 300.0


def delay_s(rules: RetryRules, n_before: int, jitter: float) -> float:
    """Returns the back-off after `n_before` earlier attempts: 0.5 to 1.5 times the nominal delay.

    `jitter` is uniform in [0, 1), so that a thousand devices do not retry at the same moment.
    """
    # The exponent is bounded because 2.0**1100 overflows; the maximum delay is reached much
    # earlier.
    nominal_s = min(rules.max_delay_s, rules.first_delay_s * 2.0 ** min(n_before, 30))
    return nominal_s * (0.5 + jitter)


def finished(
    state: DispatchState,
    device: str,
    failure: Failure | None,
    *,
    rules: RetryRules,
    now_s: float,
    jitter: float,
) -> tuple[DispatchState, bool]:
    """Returns the state after a result, and whether the repeat will be retried."""
    lane = state.lanes[device]
    attempt = lane.running
    if attempt is None:
        return state, False
    lane = replace(lane, running=None)
    is_host_lost = failure is not None and failure.kind is ErrorKind.HOST_LOST
    # A lost host returns its work; this does not count as an attempt.
    n_tries = attempt.n_tries if is_host_lost else attempt.n_tries + 1
    will_retry = failure is not None and failure.is_transient and n_tries < rules.max_attempts
    if will_retry:
        again = replace(attempt, number=attempt.number + 1, n_tries=n_tries)
        ready_s = now_s + delay_s(rules, attempt.n_tries, jitter)
        lane = replace(lane, retries=(*lane.retries, Waiting(attempt=again, ready_s=ready_s)))
    lane = _judge_device(lane, failure, rules=rules, now_s=now_s, jitter=jitter)
    state = with_lane(state, lane)
    return host_lost(state, lane.host, rules, now_s) if is_host_lost else state, will_retry


def host_lost(state: DispatchState, host: str, rules: RetryRules, now_s: float) -> DispatchState:
    """Returns the state after a host stopped answering: its devices are set aside and probed.

    It can take long until the first device answers. Until then nothing starts on the others.
    """
    for lane in state.lanes.values():
        if lane.host == host and lane.host_until_s is None and not lane.is_given_up:
            until_s = now_s + rules.host_wait_s
            aside = replace(lane, probe_at_s=now_s, n_probes=0, host_until_s=until_s)
            state = with_lane(state, aside)
    return state


def condemns_cell(kind: ErrorKind, *, is_transient: bool) -> bool:
    """Whether this failure ends every repeat of its cell, if the cell has no measured repeat yet.

    Otherwise a model that never returns would cost the time limit once for each repeat.
    """
    return kind in _THE_CELL and not is_transient


def probed(
    state: DispatchState,
    device: str,
    failure: Failure | None,
    *,
    rules: RetryRules,
    now_s: float,
) -> DispatchState:
    """Returns the state after a probe of a device that was set aside.

    A device that answers is used again; one more failure sets it aside again. A device whose host
    is unavailable is waited for as long as the host.
    """
    lane = state.lanes[device]
    n_probes = lane.n_probes + 1
    if failure is not None and failure.kind is ErrorKind.HOST_LOST and lane.host_until_s is None:
        lane = replace(lane, host_until_s=now_s + rules.host_wait_s)
    if failure is None:
        # The host was unavailable, not the device, unless the device itself had failed before.
        n_failures = rules.failures_to_set_aside - 1
        if lane.host_until_s is not None:
            n_failures = min(n_failures, lane.n_failures_in_a_row)
        lane = replace(
            lane, probe_at_s=None, n_probes=0, host_until_s=None, n_failures_in_a_row=n_failures
        )
    elif _is_hopeless(lane, n_probes, rules, now_s):
        lane = replace(lane, probe_at_s=None, n_probes=n_probes, is_given_up=True)
    else:
        is_host = lane.host_until_s is not None
        pause_s = _HOST_PROBE_S if is_host else delay_s(rules, n_probes, 0.5)
        lane = replace(lane, probe_at_s=now_s + pause_s, n_probes=n_probes)
    return with_lane(state, lane)


def _is_hopeless(lane: Lane, n_probes: int, rules: RetryRules, now_s: float) -> bool:
    if lane.host_until_s is not None:
        return now_s >= lane.host_until_s
    return n_probes >= rules.max_probes


def _judge_device(
    lane: Lane, failure: Failure | None, *, rules: RetryRules, now_s: float, jitter: float
) -> Lane:
    if failure is None:
        return replace(lane, n_failures_in_a_row=0) if lane.n_failures_in_a_row else lane
    if failure.kind in _NOT_THE_DEVICE:
        return lane
    n_failures = lane.n_failures_in_a_row + 1
    if n_failures < rules.failures_to_set_aside:
        return replace(lane, n_failures_in_a_row=n_failures)
    probe_at_s = now_s + delay_s(rules, 0, jitter)
    return replace(lane, n_failures_in_a_row=n_failures, probe_at_s=probe_at_s)
