"""What a result means for the repeat and for its device: pure."""

from dataclasses import dataclass, replace

from device_agents.types import Failure
from device_agents.vocabulary import ErrorKind
from orchestrator.dispatch.state import DispatchState, Lane, Waiting, with_lane

_NOT_THE_DEVICE = frozenset(
    {
        ErrorKind.BAD_ARTIFACT,
        ErrorKind.UNSUPPORTED,
        ErrorKind.EXPORT_FAILED,
        ErrorKind.VERIFICATION_FAILED,
        ErrorKind.INTERRUPTED,
        ErrorKind.DISK_FULL,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRules:
    """When to try again, and when to distrust a device.

    Attributes:
        max_attempts: tries at one repeat, at least 1.
        first_delay_s: before the second try; doubles with each further one.
        max_delay_s: the longest back-off and the longest pause between two probes.
        failures_to_set_aside: this many repeats failing in a row put a device aside.
        max_probes: a device that answers none of so many probes is given up.
    """

    max_attempts: int
    first_delay_s: float = 0.5
    max_delay_s: float = 30.0
    failures_to_set_aside: int = 3
    max_probes: int = 5


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
    lane = state.lane(device)
    attempt = lane.running
    if attempt is None:
        return state, False
    lane = replace(lane, running=None)
    will_retry = (
        failure is not None and failure.is_transient and attempt.n_tries + 1 < rules.max_attempts
    )
    if will_retry:
        again = replace(attempt, number=attempt.number + 1, n_tries=attempt.n_tries + 1)
        ready_s = now_s + delay_s(rules, attempt.n_tries, jitter)
        lane = replace(lane, retries=(*lane.retries, Waiting(attempt=again, ready_s=ready_s)))
    lane = _judge_device(lane, failure, rules=rules, now_s=now_s, jitter=jitter)
    return with_lane(state, lane), will_retry


def condemns_cell(kind: ErrorKind, *, is_transient: bool) -> bool:
    """Whether this failure speaks for every repeat of its cell that has none measured yet.

    A model that never returns would else cost the time limit once for each repeat.
    """
    return kind in _THE_CELL and not is_transient


def probed(
    state: DispatchState, device: str, *, is_well: bool, rules: RetryRules, now_s: float
) -> DispatchState:
    """The state after a device that was set aside was asked whether it is well.

    A device that is well comes back, one failure away from being set aside again.
    """
    lane = state.lane(device)
    n_probes = lane.n_probes + 1
    if is_well:
        lane = replace(
            lane,
            probe_at_s=None,
            n_probes=0,
            n_failures_in_a_row=rules.failures_to_set_aside - 1,
        )
    elif n_probes >= rules.max_probes:
        lane = replace(lane, probe_at_s=None, n_probes=n_probes, is_given_up=True)
    else:
        probe_at_s = now_s + delay_s(rules, n_probes, 0.5)
        lane = replace(lane, probe_at_s=probe_at_s, n_probes=n_probes)
    return with_lane(state, lane)


def _judge_device(
    lane: Lane, failure: Failure | None, *, rules: RetryRules, now_s: float, jitter: float
) -> Lane:
    if failure is None:
        return replace(lane, n_failures_in_a_row=0)
    if failure.kind in _NOT_THE_DEVICE:
        return lane
    n_failures = lane.n_failures_in_a_row + 1
    if n_failures < rules.failures_to_set_aside:
        return replace(lane, n_failures_in_a_row=n_failures)
    probe_at_s = now_s + delay_s(rules, 0, jitter)
    return replace(lane, n_failures_in_a_row=n_failures, probe_at_s=probe_at_s)
