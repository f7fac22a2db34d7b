"""Waits until a phone is ready to be measured; a hot phone would give wrong latencies."""

from collections.abc import Callable

from fleetrank.device_agents.android.state.clock import SYSTEM_CLOCK, Clock
from fleetrank.device_agents.android.state.phone_conditions import PhoneConditions
from fleetrank.device_agents.android.state.readiness import (
    PhoneRules,
    Readiness,
    Verdict,
    judge_readiness,
)
from fleetrank.device_agents.contract.agent import StopRequested, never_stop
from fleetrank.device_agents.errors import UnfitConditionsError


def wait_until_ready(
    read: Callable[[], PhoneConditions],
    rules: PhoneRules,
    *,
    stop_requested: StopRequested = never_stop,
    clock: Clock = SYSTEM_CLOCK,
) -> PhoneConditions:
    """Checks a phone repeatedly until it is ready, and returns its conditions then.

    Args:
        read: reads the conditions once; an error it raises ends the wait.
        rules: when the phone is ready, how long to wait and how often to check.
        stop_requested: asked while waiting.
        clock: tests pass another clock.

    Raises:
        UnfitConditionsError: waiting does not help, or the time limit passed.
        StoppedError: the user asked to stop.
    """
    deadline_ns = clock.now_ns() + int(rules.max_wait_s * 1e9)
    while True:
        seen = read()
        readiness = judge_readiness(seen, rules)
        if readiness.verdict is Verdict.READY:
            return seen
        if readiness.verdict is Verdict.REFUSE:
            raise UnfitConditionsError(
                f"the phone cannot be measured on: {readiness.reason}", readiness.remedy
            )
        if clock.now_ns() >= deadline_ns:
            raise _waited(readiness, rules)
        clock.pause(min(rules.poll_s, (deadline_ns - clock.now_ns()) / 1e9), stop_requested)


def _waited(readiness: Readiness, rules: PhoneRules) -> UnfitConditionsError:
    return UnfitConditionsError(
        f"the phone is not ready after {rules.max_wait_s:g} s: {readiness.reason}", readiness.remedy
    )
