"""Waits for a phone that was lost or restarts, and lets it settle."""

from fleetrank.device_agents.android.adb.phone import Phone
from fleetrank.device_agents.android.state.clock import SYSTEM_CLOCK, Clock
from fleetrank.device_agents.contract.agent import StopRequested, never_stop
from fleetrank.device_agents.device_output.plausible import UPTIME_S
from fleetrank.device_agents.errors import StoppedError, TimedOutError, TransientError

BOOT_LIMIT_S = 180.0
SETTLE_S = 20.0
"""Source: FAI-PEP issue 296: the first run after a restart fails without both."""
POLL_S = 0.5
"""A look costs milliseconds; the phone may be back at any moment."""
ASK_TIMEOUT_S = 10.0
COME_BACK_LIMIT_S = 15.0
"""adb finds a phone again within seconds; one that hangs costs no more than this."""
_SCRIPT = "getprop sys.boot_completed; cat /proc/uptime"


def wait_until_booted(
    phone: Phone,
    *,
    limit_s: float = BOOT_LIMIT_S,
    settle_s: float = SETTLE_S,
    stop_requested: StopRequested = never_stop,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Waits until the phone answers and says that it is up, connecting again over the network.

    A phone that has been up for longer than it takes to settle is not waited for.

    Raises:
        TransientError: it does not come back in time; its own error when it gave one.
        PermanentError: it is back and does not accept this computer any more, or says what
            cannot be.
        StoppedError: the user asked.
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
            last = error  # somebody else may still be served over this connection
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
    """Adb answers 'already connected' for a phone that it lost, and looks for it at leisure."""
    try:
        phone.disconnect()
    except TransientError:
        return  # the server is away too; the next look starts it


def _uptime_s(phone: Phone, stop_requested: StopRequested) -> float | None:
    phone.connect()
    result = phone.shell(_SCRIPT, timeout_s=ASK_TIMEOUT_S, stop_requested=stop_requested)
    return parse_uptime(result.stdout)


def parse_uptime(text: str) -> float | None:
    """Seconds since the start of a phone that is up; `None` for one that still starts.

    Raises:
        BadOutputError: a time that cannot be: the wait would be computed from it.
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
