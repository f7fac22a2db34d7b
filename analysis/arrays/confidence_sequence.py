"""Intervals of a mean that hold at every number of values together.

An interval for a number of values that was fixed before is too narrow for a user who looks after
each value and stops as soon as the interval excludes 0. The intervals of a confidence sequence
contain the mean at all looks together with probability 1 - alpha.

Source: the mixture over effects of the likelihood ratio of Student's t is a martingale if the mean
is 0, whatever the variance (Lai 1976; Wang and Ramdas 2025, "Anytime-valid t-tests and confidence
sequences for Gaussian means with unknown variance"); it exceeds 1 / alpha with probability alpha
(Ville 1939). Degrees of freedom beyond n - 1 are what the other variances of `interval.shrunk` are
worth.
"""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.ranking import Floats

MIN_VALUES = 2
"""Fewer have no variance of their own."""
EFFECT = 10.0
"""Variance of the mixture's effects, in variances of one value.

Between two models effects are far larger than noise. Of 3, 10, 30 and 100 it is the best for three
and five values of three models or more; at ten and twenty its intervals are up to 6 % wider than
those of 3.
"""
_MOST = 1000
Reach = Callable[[Floats, npt.ArrayLike, Floats, float], Floats]
"""Half-width of the interval of a mean, as `reach`."""


def reach(variance: Floats, n: npt.ArrayLike, degrees: Floats, alpha: float) -> Floats:
    """Half-width of the interval of the mean of n values; infinite where n is too small for alpha.

    Args:
        variance: of one value.
        n: values so far.
        degrees: of freedom of the variance, above 0.
        alpha: probability that any interval of the sequence misses.
    """
    number = np.asarray(n, dtype=np.float64)
    growth = 1 + number * EFFECT
    limit = np.exp((2 * np.log(1 / alpha) + np.log(growth)) / (degrees + 1))
    with np.errstate(divide="ignore", over="ignore"):
        squared = np.where(limit < growth, degrees * (limit - 1) / (1 - limit / growth), np.inf)
    found: Floats = np.sqrt(squared * variance / number)
    return found


def looks_needed(distance: float, spread: tuple[float, float], n: int, alpha: float) -> int | None:
    """Further values after which the interval is narrower than a distance on each side.

    If mean and variance stay as they are.

    Args:
        distance: of the mean from a bound.
        spread: variance of one value and its degrees of freedom, now.
        n: values so far.
        alpha: as in `reach`.

    Returns:
        At least 1; `None` if more than a thousand are needed.
    """
    from scipy import optimize

    variance, degrees = spread

    def lacking(more: float) -> float:
        width = reach(np.array(variance), n + more, np.array(degrees + more), alpha)
        return float(width) - distance

    if lacking(_MOST) > 0:
        return None
    return 1 if lacking(1) <= 0 else math.ceil(optimize.brentq(lacking, 1, _MOST))
