"""Arithmetic of one curve: cost and rate of one model on one platform at growing values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

KNEE_GAIN = 1.2
"""Twice the batch must give this times the rate; below it a larger batch mostly adds latency."""
MIN_POINTS = 3
"""A line through two points has no residual, so its R2 says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerFit:
    """The line log(y) = a + slope log(x), by least squares.

    Attributes:
        r2: share of the variance of log(y) on the line; `None` where y does not vary.
    """

    slope: float
    r2: float | None


def power_fit(x: Sequence[float], y: Sequence[float]) -> PowerFit | None:
    """Fits a power of x to y; both (n,) and above 0.

    A slope of 1 is proportional growth, 0 is none. `None` with fewer than `MIN_POINTS` different x:
    nothing is said about values outside the range of x.
    """
    if len(set(x)) < MIN_POINTS:
        return None
    log_x, log_y = np.log(np.asarray(x, dtype=float)), np.log(np.asarray(y, dtype=float))
    from_x, from_y = log_x - log_x.mean(), log_y - log_y.mean()
    slope = float(from_x @ from_y / (from_x @ from_x))
    total = float(from_y @ from_y)
    residual = float(((from_y - slope * from_x) ** 2).sum())
    is_flat = total <= np.finfo(float).eps * len(log_y)
    return PowerFit(slope=slope, r2=None if is_flat else max(1 - residual / total, 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    """Where doubling stops to pay.

    Attributes:
        value: the smallest value whose double has less than `KNEE_GAIN` times its rate.
        reason: why there is none; `None` if there is one.
    """

    value: int | None
    reason: str | None


def find_knee(rates: Mapping[int, float]) -> Knee:
    """Finds the knee of rates by value, such as images per second by batch.

    Only measured values count. If the double of a value was not measured, the knee could be there,
    so a larger one is not called the smallest.

    Source: the efficiency framework that this program follows: "knee = smallest B with
        tps(2B)/tps(B) < 1.2".
    """
    values = sorted(rates)
    if len(values) < 2:
        return Knee(value=None, reason="one value measured")
    for value in values[:-1]:
        double = rates.get(2 * value)
        if double is None:
            return Knee(value=None, reason=f"{2 * value} not measured")
        if double / rates[value] < KNEE_GAIN:
            return Knee(value=value, reason=None)
    return Knee(value=None, reason=f"none up to {values[-1]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFit:
    """What fits into memory.

    Attributes:
        largest: the largest value that was measured below the first that ran out of memory;
            `None` if no value ran out of memory, or none below it was measured.
        first_too_large: the smallest value that ran out of memory; `None` without one.
    """

    largest: int | None
    first_too_large: int | None
    reason: str | None = None


def find_fit(measured: Sequence[int], out_of_memory: Sequence[int]) -> MemoryFit:
    """The largest value that fits, by the values that were measured and those that failed."""
    if not out_of_memory:
        return MemoryFit(largest=None, first_too_large=None)
    first = min(out_of_memory)
    below = [value for value in measured if value < first]
    above = [value for value in measured if value > first]
    reason = f"{first} ran out of memory, {min(above)} did not" if above else None
    return MemoryFit(largest=max(below, default=None), first_too_large=first, reason=reason)
