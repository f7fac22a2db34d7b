"""What a result means for the repeat and for its device: pure."""

from dataclasses import dataclass, replace

from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.device_agents.contract.vocabulary import ErrorKind
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
"""Failures that say nothing about the device's health."""

_THE_CELL = frozenset(
    {
        ErrorKind.BAD_ARTIFACT,
        ErrorKind.UNSUPPORTED,
        ErrorKind.OUT_OF_MEMORY,
        ErrorKind.TIMED_OUT,
    }
)
"""Failures that another repeat of the cell would meet too.

A crash may be chance and costs little to try again; a missing library, a lost device, a full disk
and a stop on request are not the cell's fault; a failed export never reaches a device.
"""


_HOST_PROBE_S = 1.0
"""Asking for a host that is not there costs nothing: the list of hosts is kept anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRules:
    """When to try again, and when to distrust a device.

    Attributes:
        max_attempts: tries at one repeat, at least 1.
        first_delay_s: before the second try; doubles with each further one.
        max_delay_s: the longest back-off and the longest pause between two probes.
        failures_to_set_aside: this many repeats failing in a row put a device aside.
        max_probes: a device that answers none of so many probes is given up.
        host_wait_s: a host that fell silent is waited for so long before its devices are given up.
    """

    max_attempts: int
    first_delay_s: float = 0.5
    max_delay_s: float = 30.0
    failures_to_set_aside: int = 3
    max_probes: int = 5
    host_wait_s: float = 300.0


def delay_s(rules: RetryRules, n_before: int, jitter: float) -> float:
    """Back-off after `n_before` earlier tries, between half and one and a half of its nominal.

    `jitter` is uniform in [0, 1), so that a thousand devices do not come back in one moment.
    """
    # The exponent is bounded: 2.0**1100 overflows, and the ceiling is long reached.
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
    """The state after a result, and whether the repeat will be tried again."""
    lane = state.lanes[device]
    attempt = lane.running
    if attempt is None:
        return state, False
    lane = replace(lane, running=None)
    is_host_lost = failure is not None and failure.kind is ErrorKind.HOST_LOST
    # A host that dies gives its work back: no try was made at the device.
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
    """The state after a host fell silent: all its devices are set aside and asked again.

    The first of them to answer may be long in coming; nothing is started on the others meanwhile.
    """
    for lane in state.lanes.values():
        if lane.host == host and lane.host_until_s is None and not lane.is_given_up:
            until_s = now_s + rules.host_wait_s
            aside = replace(lane, probe_at_s=now_s, n_probes=0, host_until_s=until_s)
            state = with_lane(state, aside)
    return state


def condemns_cell(kind: ErrorKind, *, is_transient: bool) -> bool:
    """Whether this failure speaks for every repeat of its cell that has none measured yet.

    A model that never returns would else cost the time limit once for each repeat.
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
    """The state after a device that was set aside was asked whether it is well.

    A device that is well comes back, one failure away from being set aside again; one whose host
    is not there is waited for as long as the host is.
    """
    lane = state.lanes[device]
    n_probes = lane.n_probes + 1
    if failure is not None and failure.kind is ErrorKind.HOST_LOST and lane.host_until_s is None:
        lane = replace(lane, host_until_s=now_s + rules.host_wait_s)
    if failure is None:
        # It was the host that was silent, unless the device itself had failed before.
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
