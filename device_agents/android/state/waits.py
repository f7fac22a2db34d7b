"""Waits that the user can stop: until a phone is up, and until it is ready to be measured."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from fleetrank.device_agents.android.adb.phone import Phone
from fleetrank.device_agents.android.state.fitness import (
    PhoneRules,
    Readiness,
    Verdict,
    judge_readiness,
)
from fleetrank.device_agents.android.state.phone_conditions import PhoneConditions
from fleetrank.device_agents.contract.agent import StopRequested, never_stop
from fleetrank.device_agents.device_output import UPTIME_S
from fleetrank.device_agents.errors import (
    StoppedError,
    TimedOutError,
    TransientError,
    UnfitConditionsError,
)

STEP_S = 0.2
"""How often a pause checks the stop request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """A monotonic clock and a function that waits."""

    now_ns: Callable[[], int] = time.perf_counter_ns
    sleep: Callable[[float], None] = time.sleep

    def pause(self, seconds: float, stop_requested: StopRequested) -> None:
        """Waits; reacts to a stop request within 0.2 s.

        Raises:
            StoppedError: the user asked to stop.
        """
        end_ns = self.now_ns() + int(seconds * 1e9)
        while (left_ns := end_ns - self.now_ns()) > 0:
            if stop_requested():
                raise StoppedError("stopped on request", "resume the sweep")
            self.sleep(min(STEP_S, left_ns / 1e9))


SYSTEM_CLOCK = Clock()


BOOT_LIMIT_S = 180.0
SETTLE_S = 20.0
"""Source: FAI-PEP issue 296: the first run after a restart fails without both."""
POLL_S = 0.5
"""A check takes milliseconds, and the phone may return at any moment."""
ASK_TIMEOUT_S = 10.0
COME_BACK_LIMIT_S = 15.0
"""adb finds a phone again within seconds; a phone that does not respond costs at most this."""
_SCRIPT = "getprop sys.boot_completed; cat /proc/uptime"


def wait_until_booted(
    phone: Phone,
    *,
    limit_s: float = BOOT_LIMIT_S,
    settle_s: float = SETTLE_S,
    stop_requested: StopRequested = never_stop,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Waits until the phone answers and has started; reconnects over the network.

    If the phone started longer ago than its settling time, the call does not wait.

    Raises:
        TransientError: it does not return in time; the phone's own error if there was one.
        PermanentError: it returned and no longer accepts this computer, or reports an
            impossible value.
        StoppedError: the user asked to stop.
    """
    deadline_ns = clock.now_ns() + int(limit_s * 1e9)
    last = TransientError(
        f"phone {phone.serial!r} does not finish starting", "look at its screen, or restart it"
    )
    while clock.now_ns() < deadline_ns:
        try:
            uptime_s = _uptime_s(phone, stop_requested)
        except StoppedError:
            raise
        except TimedOutError as error:
            last = error  # other callers may still use this connection
        except TransientError as error:
            last = error
            _let_go(phone)
        else:
            if uptime_s is not None:
                clock.pause(max(0.0, settle_s - uptime_s), stop_requested)
                return
        clock.pause(POLL_S, stop_requested)
    raise last


def _let_go(phone: Phone) -> None:
    """Disconnects: adb answers 'already connected' for a lost phone, and searches slowly."""
    try:
        phone.disconnect()
    except TransientError:
        return  # the server is unavailable too; the next check starts it


def _uptime_s(phone: Phone, stop_requested: StopRequested) -> float | None:
    phone.connect()
    result = phone.shell(_SCRIPT, timeout_s=ASK_TIMEOUT_S, stop_requested=stop_requested)
    return parse_uptime(result.stdout)


def parse_uptime(text: str) -> float | None:
    """Seconds since the start of a phone that is up; `None` while it is still starting.

    Raises:
        BadOutputError: an impossible time; the wait would be computed from it.
    """
    words = text.split()
    if not words or words[0] != "1":
        return None
    try:
        uptime_s = float(words[1])
    except (IndexError, ValueError):
        return 0.0
    UPTIME_S.require(uptime_s, words[1])
    return uptime_s


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
