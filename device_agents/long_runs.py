"""Timed runs back to back for a given time, however many they are: sustained throughput."""

from array import array
from dataclasses import dataclass

from fleetrank.device_agents.timing import (
    NOTHING,
    Clock,
    Step,
    TimedRuns,
    Untimed,
    collection_off,
    fill,
)
from fleetrank.foundation.units import NS_PER_S

MIN_TIME = "min_time"
"""Why such runs end; `max_samples` if there were too many."""
MOST_RUNS = 500_000
"""A repeat is one message of at most 16 MB; so many runs, each with a second clock, fit into it."""
_FIRST_RUNS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRuns:
    """The runs, the start of the first one, and the time from it to the end of the last one."""

    runs: TimedRuns
    start_ns: int
    wall_ns: int


def time_for(
    step: Step, clock: Clock, min_time_s: float, untimed: Untimed = NOTHING, most: int = MOST_RUNS
) -> LongRuns:
    """Times runs until one ends `min_time_s` or more after the start of the first.

    Each run is timed as in `timing.time_runs`. Storage grows between two runs, by half of what
    there is, so that it takes no time inside of one.

    Args:
        step: one synchronised inference.
        clock: monotonic nanoseconds.
        min_time_s: above 0.
        untimed: around each run; its time is part of the wall time.
        most: runs at most, at least 1.
    """
    samples = array("q", bytes(8 * min(_FIRST_RUNS, most)))
    with collection_off():
        start = end = clock()
        deadline = start + int(min_time_s * NS_PER_S)
        count = 0
        while count < most and end < deadline:
            count = fill(samples, count, len(samples), (step, clock, deadline), untimed)
            end = clock()
            if count == len(samples):
                grown = min(count + count // 2 + 1, most)
                samples.frombytes(bytes(8 * (grown - count)))
    reason = MIN_TIME if end >= deadline else "max_samples"
    runs = TimedRuns(samples_ns=tuple(samples[:count]), stop_reason=reason)
    return LongRuns(runs=runs, start_ns=start, wall_ns=end - start)
