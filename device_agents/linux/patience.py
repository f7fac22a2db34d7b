"""Waits until a device is fit, for callers without a scheduler, such as a registration."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from fleetrank.device_agents.contract.agent import Agent, Say, StopRequested, never_stop
from fleetrank.device_agents.contract.failures import waited_in_vain
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.task import MeasureTask
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


def measure_when_fit(
    agent: Agent,
    task: MeasureTask,
    say: Say,
    *,
    stop_requested: StopRequested = never_stop,
    clock: Clock = SYSTEM_CLOCK,
) -> Measurement:
    """Measures one repeat and asks again as long as the device is not fit; `say` gets the reasons.

    After the limit the last answer is a failed measurement like any other.

    Raises:
        StoppedError: the user asked to stop.
    """
    started_ns = clock.now_ns()
    while True:
        measurement = agent.measure(task, stop_requested)
        failure = measurement.failure
        if failure is None or failure.wait is None:
            return measurement
        waited_s = (clock.now_ns() - started_ns) / 1e9
        left_s = failure.wait.limit_s - waited_s
        if left_s <= 0:
            return replace(measurement, failure=waited_in_vain(failure, waited_s))
        say(f"waiting, at most {left_s:.0f} s more: {failure.message}")
        clock.pause(min(failure.wait.ask_again_s, left_s), stop_requested)
