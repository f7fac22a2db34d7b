"""How many processes decide, and the smallest change that is found."""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special

from fleetrank.analysis.arrays.interval import half_width, squared_error
from fleetrank.analysis.arrays.two_samples import MAX_PLANNED, POWER, Limits, log_ratios


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatPlan:
    """One log ratio, to be measured again with other numbers of processes.

    Attributes:
        estimate, error, degrees: as of `LogRatios`.
        variances: of the log of one process of A and of B.
        n: processes of the side with fewer.
        took_turns: both figures are means.
        between: half-width and degrees of the part of the error that comes from two sessions, and
            the degrees of the rest; `None` in one session.
    """

    estimate: float
    error: float
    degrees: float
    variances: tuple[float, float]
    n: int
    took_turns: bool = False
    between: tuple[float, float, float] | None = None

    def with_processes(self, n: int) -> tuple[float, float]:
        """Standard error and degrees of freedom of n processes a side with the same variances."""
        is_mean, number = np.array(self.took_turns), np.array(n)
        squares = squared_error(np.array(sum(self.variances)), number, is_mean)
        times = max(n - 1, 1) / max(self.n - 1, 1)
        if self.between is None:
            return math.sqrt(float(squares)), self.degrees * times
        reach, degrees, own = (np.array(one) for one in self.between)
        found = log_ratios(
            np.zeros(()), (half_width(squares, own * times), own * times), (reach, degrees)
        )
        return float(found.errors), float(found.degrees)


def same_power(truth: float, plan: RepeatPlan, n: int, limits: Limits) -> float:
    """Probability that the interval of n processes a side lies inside the margin.

    Args:
        truth: the true log ratio.
        plan: gives the variances.
        n: processes a side, at least 2.
        limits: margin, and 1 - alpha of the interval.

    Source: Phillips 1990: the difference of two non-central t probabilities.
    """
    error, degrees = plan.with_processes(n)
    if error == 0:
        return float(abs(truth) < limits.bound)
    t = float(special.stdtrit(degrees, 1 - limits.alpha / 2))
    below = special.nctdtr(degrees, (truth - limits.bound) / error, -t)
    above = special.nctdtr(degrees, (truth + limits.bound) / error, t)
    return max(0.0, float(below - above))


def change_power(truth: float, plan: RepeatPlan, n: int, limits: Limits) -> float:
    """Probability that n processes a side show a change whose estimate is outside the margin.

    The lower of the probabilities of both. Arguments as in `same_power`.
    """
    error, degrees = plan.with_processes(n)
    if error == 0:
        return float(abs(truth) >= limits.bound)
    t = float(special.stdtrit(degrees, 1 - limits.alpha / 2))
    is_found = 1 - special.nctdtr(degrees, abs(truth) / error, t)
    is_outside = special.ndtr((abs(truth) - limits.bound) / error)
    return float(min(is_found, is_outside))


def repeats_to_decide(plan: RepeatPlan, limits: Limits) -> int | None:
    """Processes a side with which a comparison decides with probability `POWER`.

    Planned for the estimated ratio: to show that it is inside the margin, or the change. An
    estimate from few repeats can be far off: if a ratio of half the margin is in its interval,
    the number is also enough to show that one. The variances are taken as true. `None` if it
    needs more than `MAX_PLANNED`, or if the spread between sessions is too large for any number;
    always more than there are.
    """
    size, half = abs(plan.estimate), limits.bound / 2
    reach = float(special.stdtrit(plan.degrees, 1 - limits.alpha / 2)) * plan.error
    truths = (size, half) if size - reach < half else (size,)

    def reached(n: int) -> float:
        return min(
            (same_power if truth < limits.bound else change_power)(truth, plan, n, limits)
            for truth in truths
        )

    if not reached(MAX_PLANNED) >= POWER:  # also where the power is not known
        return None
    return first_enough(reached, range(max(plan.n + 1, 2), MAX_PLANNED + 1))


def first_enough(power: Callable[[int], float], numbers: range) -> int | None:
    """The first number whose power is at least `POWER`; `None` if that of the last is lower."""
    position = bisect_left(numbers, POWER, key=power)
    return numbers[position] if position < len(numbers) else None


def detectable_ratio(plan: RepeatPlan, alpha: float) -> float:
    """The smallest ratio that is found with probability `POWER` at this noise.

    Its inverse is the largest one below 1. Source: Cohen 1988, 2.4: the shift is (t of alpha + t of
    power) standard errors.
    """
    t = special.stdtrit(plan.degrees, [1 - alpha / 2, POWER]).sum()
    return math.exp(float(t) * plan.error)
