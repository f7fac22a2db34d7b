"""Is a phone up, and is it fit: one look each, which says when to look again."""

from collections.abc import Callable

from fleetrank.device_agents.android.phone import Phone
from fleetrank.device_agents.contract.agent import StopRequested, never_stop
from fleetrank.device_agents.device_output import UPTIME_S
from fleetrank.device_agents.errors import AwayError, StoppedError, TimedOutError, TransientError
from fleetrank.device_agents.hold import LostHoldError
from fleetrank.device_agents.linux.patience import SYSTEM_CLOCK
from fleetrank.foundation.units import NS_PER_S

BOOT_LIMIT_S = 180.0
SETTLE_S = 20.0
"""Source: FAI-PEP issue 296: the first run after a restart fails without both."""
ASK_TIMEOUT_S = 10.0
AWAY_S = 2.0
"""adb finds a phone again within seconds after its cable is plugged in."""
HUNG_S = 30.0
"""A phone that hangs occupies its host for the whole `ASK_TIMEOUT_S`, so it is asked seldom."""
COME_BACK_LIMIT_S = 15.0
"""A phone that was lost in the middle of a repeat costs at most this before it is cleaned."""
_POLL_S = 0.5
_SCRIPT = "getprop sys.boot_completed; cat /proc/uptime"


def require_up(
    phone: Phone,
    *,
    limit_s: float = BOOT_LIMIT_S,
    settle_s: float = SETTLE_S,
    stop_requested: StopRequested = never_stop,
) -> None:
    """Looks once whether a phone answers and has rested since its start; reconnects over Wi-Fi.

    Raises:
        AwayError: not yet; the caller looks again, for at most `limit_s`.
        PermanentError: it no longer accepts this computer, or reports an impossible value.
        StoppedError: the user asked to stop.
    """
    try:
        uptime_s = _uptime_s(phone, stop_requested)
    except StoppedError:
        raise
    except TimedOutError as error:
        # A network that was cut leaves a connection on which nothing ever answers.
        _let_go(phone)
        raise AwayError(error.message, error.remedy, HUNG_S, limit_s) from error
    except TransientError as error:
        _let_go(phone)
        raise AwayError(error.message, error.remedy, AWAY_S, limit_s) from error
    if uptime_s is None:
        message = f"phone {phone.serial!r} does not finish starting"
        raise AwayError(message, "look at its screen, or restart it", AWAY_S, limit_s)
    if uptime_s < settle_s:
        message = (
            f"phone {phone.serial!r} started {uptime_s:.0f} s ago and rests for {settle_s:g} s"
        )
        raise AwayError(message, "wait", settle_s - uptime_s, limit_s)


def when_back(
    phone: Phone, step: Callable[[Phone], None], limit_s: float = COME_BACK_LIMIT_S
) -> None:
    """Waits for a phone and does one step on it, again if the connection was interrupted.

    Nothing is tried after `limit_s`. The step must be safe to do twice.

    Raises the errors of `require_up` and of the step.
    """
    deadline_ns = SYSTEM_CLOCK.now_ns() + int(limit_s * NS_PER_S)
    while True:
        try:
            require_up(phone, settle_s=0.0)
            return step(phone)
        except LostHoldError:
            raise
        except TransientError:
            if SYSTEM_CLOCK.now_ns() >= deadline_ns:
                raise
        SYSTEM_CLOCK.pause(_POLL_S, never_stop)


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
