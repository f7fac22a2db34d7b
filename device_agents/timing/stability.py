"""Decides when there are enough samples: pure functions of the times so far.

The interval here is for one process and only decides how long to continue. Processes differ by
more than this interval, so it is never shown as the uncertainty of a latency.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fleetrank.device_agents.contract.task import MeasurePolicy

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
    """Stops the timed runs by the measuring protocol's policy; it fulfils `timing.StopRule`."""

    policy: MeasurePolicy

    def check_points(self) -> Iterator[int]:
        """Yields the numbers of runs at which the rule is checked."""
        return check_points(self.policy.min_runs, self.policy.max_samples)

    def is_enough(self, samples: Sequence[int]) -> bool:
        """Whether the samples so far suffice."""
        width = median_half_width(samples)
        return width is not None and width < self.policy.half_width
