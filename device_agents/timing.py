"""The timing loop, and the rule that decides when there are enough samples.

Clock and stop rule are arguments, so that tests pass their own clock. The rule is a pure function
of the times so far. Its interval is for one process and only decides how long to continue.
Processes differ by more than this interval, so it is never shown as the uncertainty of a latency.
"""

import gc
import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from fleetrank.device_agents.contract.task import MeasurePolicy
from fleetrank.foundation.units import NS_PER_S

_Z_95 = 1.959963984540054
MIN_SAMPLES = 6
"""With fewer samples no 95 % interval of the median exists: 2 x 0.5^5 > 0.05."""
GROWTH = 1.5
"""Ratio of successive checks: sorting costs little, and at most half the runs are wasted."""


def median_half_width(samples: Sequence[int]) -> float | None:
    """Half-width of the 95 % interval of the median, as a share of the median.

    The interval is between two order statistics and assumes no distribution, only independence.
    `None` with fewer than `MIN_SAMPLES` samples or a median of 0.

    Source: J.-Y. Le Boudec, Performance Evaluation of Computer and Communication Systems (2010),
        theorem 2.1 and its normal approximation: ranks floor(0.5 n - 0.98 sqrt n) and
        ceil(0.5 n + 1 + 0.98 sqrt n).
    """
    n = len(samples)
    if n < MIN_SAMPLES:
        return None
    ordered = sorted(samples)
    reach = _Z_95 / 2 * math.sqrt(n)
    low = max(math.floor(0.5 * n - reach), 1)
    high = min(math.ceil(0.5 * n + 1 + reach), n)
    median = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    if median == 0:
        return None
    return (ordered[high - 1] - ordered[low - 1]) / 2 / median


def check_points(min_runs: int, max_samples: int) -> Iterator[int]:
    """Numbers of runs at which stopping is considered: `min_runs`, growing, to `max_samples`."""
    point = max(min_runs, 1)
    while point < max_samples:
        yield point
        point = math.ceil(point * GROWTH)
    yield max_samples


def halves_agree(cumulative_ns: Sequence[int], tolerance: float) -> bool:
    """Whether the mean times of both halves of the runs differ by at most `tolerance`.

    Args:
        cumulative_ns: sum of the times up to and including each run.
        tolerance: share of the smaller mean.
    """
    n = len(cumulative_ns)
    half = n // 2
    if half == 0:
        return False
    first = cumulative_ns[half - 1] / half
    second = (cumulative_ns[n - 1] - cumulative_ns[n - half - 1]) / half
    return abs(first - second) <= tolerance * min(first, second)


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfWidthRule:
    """Stops the timed runs by the measuring protocol's policy; it fulfils `StopRule`."""

    policy: MeasurePolicy

    def check_points(self) -> Iterator[int]:
        """Yields the numbers of runs at which the rule is checked."""
        return check_points(self.policy.min_runs, self.policy.max_samples)

    def is_enough(self, samples: Sequence[int]) -> bool:
        """Whether the samples so far took long enough and their median is known well enough."""
        if sum(samples) < self.policy.min_observed_s * NS_PER_S:
            return False
        width = median_half_width(samples)
        return width is not None and width < self.policy.half_width


Clock = Callable[[], int]
"""Monotonic nanoseconds: `time.perf_counter_ns`."""
Step = Callable[[], None]
"""One synchronised inference."""
_MAX_SUMS = 1024
"""Limit of stored sums of the warm-up; a million short runs must not change the model's memory."""


class Untimed(Protocol):
    """Work around each run that is not timed."""

    def before(self) -> None:
        """Called before the first clock reading, for example to flush caches."""
        ...

    def after(self) -> None:
        """Called after the second clock reading, for example to read a device's clock."""
        ...


class NothingUntimed:
    """The `Untimed` of a device without its own clock and cache."""

    def before(self) -> None:
        """Does nothing."""

    def after(self) -> None:
        """Does nothing."""


NOTHING = NothingUntimed()


class StopRule(Protocol):
    """Decides when there are enough timed runs."""

    def check_points(self) -> Iterator[int]:
        """Increasing numbers of runs at which `is_enough` is asked; the last one ends the runs."""
        ...

    def is_enough(self, samples: Sequence[int]) -> bool:
        """Whether these samples, in nanoseconds and in order, suffice."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """The result of the warm-up; `is_stable` is false if it ended at its time limit."""

    ns: int
    runs: int
    is_stable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedRuns:
    """The samples in order, and why they ended: `half_width max_time max_samples`."""

    samples_ns: tuple[int, ...]
    stop_reason: str


def warm_up(step: Step, clock: Clock, policy: MeasurePolicy, untimed: Untimed = NOTHING) -> WarmUp:
    """Runs until the two halves of the latest window of runs agree, within the policy's limits.

    A window is judged when it has the minimum number of runs and the minimum duration. If it has
    twice both and its halves still differ, a new window starts, so that one slow start or one spike
    does not affect the average of the next thousand runs. The limit `max_warmup_s` is checked after
    each run: one run that is longer than the limit is the last.
    """
    runs = 0
    begin = window_begin = clock()
    window = _Window()
    while True:
        untimed.before()
        start = clock()
        step()
        end = clock()
        untimed.after()
        runs += 1
        window.add(end - start)
        length_s = (end - window_begin) / NS_PER_S
        is_long_enough = window.runs >= policy.min_warmup_runs and length_s >= policy.min_warmup_s
        is_stable = is_long_enough and halves_agree(window.sums, policy.warmup_tolerance)
        if is_stable or end - begin >= policy.max_warmup_s * NS_PER_S:
            return WarmUp(ns=end - begin, runs=runs, is_stable=is_stable)
        if window.runs >= 2 * policy.min_warmup_runs and length_s >= 2 * policy.min_warmup_s:
            window, window_begin = _Window(), end


class _Window:
    """Sums of run times, thinned so that a million short runs take no more memory."""

    def __init__(self) -> None:
        self.runs = 0
        self.sums: list[int] = []
        self._total_ns = 0
        self._stride = 1

    def add(self, ns: int) -> None:
        self.runs += 1
        self._total_ns += ns
        if self.runs % self._stride == 0:
            self.sums.append(self._total_ns)
        if len(self.sums) == _MAX_SUMS:
            self.sums, self._stride = self.sums[1::2], 2 * self._stride


def time_runs(
    step: Step,
    clock: Clock,
    rule: StopRule,
    *,
    max_time_s: float,
    untimed: Untimed = NOTHING,
) -> TimedRuns:
    """Times runs until the rule is satisfied, its last check point is reached, or time is over.

    Storage for all samples is allocated before, and garbage collection is off. Between the two
    clock readings only the step runs. At least one run is timed.
    """
    points = list(rule.check_points())
    samples = array("q", bytes(8 * points[-1]))
    with collection_off():
        deadline = clock() + int(max_time_s * NS_PER_S)
        for begin, end in pairwise([0, *points]):
            count = fill(samples, begin, end, (step, clock, deadline), untimed)
            if count < end:
                return TimedRuns(samples_ns=tuple(samples[:count]), stop_reason="max_time")
            if rule.is_enough(samples[:count]):
                return TimedRuns(samples_ns=tuple(samples[:count]), stop_reason="half_width")
    return TimedRuns(samples_ns=tuple(samples), stop_reason="max_samples")


def fill(
    samples: "array[int]", begin: int, end: int, how: tuple[Step, Clock, int], untimed: Untimed
) -> int:
    """Times runs `begin` to `end` into the array; returns how many exist at the deadline.

    Args:
        samples: storage, at least `end` long.
        begin: index of the first run.
        end: index after the last run.
        how: one inference, the clock, and the time on it after which no run starts.
        untimed: around each run.
    """
    step, clock, deadline = how
    before, after = untimed.before, untimed.after
    for index in range(begin, end):
        before()
        start = clock()
        step()
        stop = clock()
        after()
        samples[index] = stop - start
        if stop >= deadline:
            return index + 1
    return end


@contextmanager
def collection_off() -> Iterator[None]:
    """Collects once, then disables the garbage collector; does nothing if it is already disabled.

    A collection cools the caches, so it runs before the warm-up.
    """
    if not gc.isenabled():
        yield
        return
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
