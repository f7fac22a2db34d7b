"""Waits until a phone is fit to be measured on, rather than measure it hot."""

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
    """Looks at a phone again and again until it is fit, and returns its state then.

    Args:
        read: looks once; what it raises ends the wait.
        rules: when it is fit, how long to wait and how often to look.
        stop_requested: asked while waiting.
        clock: another one in tests.

    Raises:
        UnfitConditionsError: waiting does not help, or did not in time.
        StoppedError: the user asked.
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
        f"the phone is not fit after {rules.max_wait_s:g} s: {readiness.reason}", readiness.remedy
    )
