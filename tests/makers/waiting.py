"""Waits for a condition instead of a fixed time: as short as possible, and with a limit."""

import time
from collections.abc import Callable

POLL_S = 0.02


def wait_until(is_so: Callable[[], bool], what: str, limit_s: float = 20.0) -> None:
    """Returns when the condition holds; `what` names it in the error of a wait that is too long."""
    end_s = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < end_s, f"waited {limit_s:g} s for {what}"
        time.sleep(POLL_S)
