"""Waits that the user can stop; tests replace the clock."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from fleetrank.device_agents.contract.agent import StopRequested
from fleetrank.device_agents.errors import StoppedError

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
