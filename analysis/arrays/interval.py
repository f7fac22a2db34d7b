"""The 95 % interval of a median of few values: from their own spread, and from that of their like.

A spread of few values is itself uncertain. So the variance of each set is drawn to the usual one,
the more the fewer values it has and the more alike the others are.
"""

import math

import numpy as np
import numpy.typing as npt
from scipy import special

from fleetrank.analysis.arrays.ranking import Floats

CONFIDENCE = 0.95
_LOSSES = np.array([1.0, 1.0, 1.0, 1.346, 1.193, 1.434, 1.288, 1.473, 1.345, 1.495, 1.383])
"""Of 0 to 10 values, by integrating order statistics (Hojo 1931)."""
_KNOWN = 1e6
"""Degrees of freedom of a variance that counts as known."""
_LEAST_STRENGTH = 1.0
"""Least degrees of freedom that the usual variance is worth: of few sets theirs says little."""
_UNUSUAL = 25.0
"""A variance so many times the median one says nothing of the others: five times the spread."""
_MIN_SETS = 5
"""Fewest sets of which one can be unusual."""
_LEAST_SETS, _LEAST_DEGREES = 4, 2
"""Sets, and degrees of freedom of the middle one, from which on their centre is used: below, 2 to
4 % more ratios were outside of their intervals."""
_NEWTON_STEPS = 50


def median_loss(n: npt.NDArray[np.int64]) -> Floats:
    """Variance of the median of n normal values over that of their mean; rises to pi / 2.

    Beyond 10 values that of an odd number, at most 8 % too large for an even one.
    """
    many = math.pi / 2 * (1 - (4 - math.pi) / (2 * np.maximum(n, 1)))
    return np.where(n < _LOSSES.size, _LOSSES[np.clip(n, 0, _LOSSES.size - 1)], many)


def shrunk(
    squares: Floats, degrees: Floats, is_usual: npt.NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Variances drawn to the usual one, and their degrees of freedom, (n_sets,) each.

    NaN and 0 where no set has a spread. An unusual set says nothing about the others, and keeps its
    own variance if that is larger.

    Args:
        squares: around the mean of each set, (n_sets,).
        degrees: of freedom; 0 for a single value, (n_sets,).
        is_usual: which sets may say what is usual, (n_sets,).

    Source: Smyth 2004: an inverse chi-square prior, its strength by the moments of log variances.
    """
    is_known = degrees > 0
    own = np.divide(squares, degrees, out=np.zeros(degrees.shape), where=is_known)
    fitted = is_usual & is_known if (is_usual & is_known).any() else is_known
    if fitted.sum() >= _MIN_SETS:
        fitted &= own <= _UNUSUAL * np.median(own[fitted])
    total = degrees[fitted].sum()
    if total == 0:
        return np.full(degrees.shape, np.nan), np.zeros(degrees.shape)
    usual, strength = _usual(own[fitted], degrees[fitted])
    variance = (strength * usual + squares) / (strength + degrees)
    keeps = is_known & ~fitted & (own > variance)
    return (
        np.where(keeps, own, variance),
        np.where(keeps, degrees, np.minimum(strength + degrees, total)),
    )


def shrunk_by(
    squares: Floats,
    degrees: Floats,
    is_usual: npt.NDArray[np.bool_],
    alike: npt.NDArray[np.generic],
) -> tuple[Floats, Floats]:
    """`shrunk` of each group of sets with the same value of `alike`, (n_sets,)."""
    found = np.full((2, squares.size), np.nan)
    for name in np.unique(alike):
        mine = alike == name
        found[:, mine] = shrunk(squares[mine], degrees[mine], is_usual[mine])
    return found[0], found[1]


def _usual(variances: Floats, degrees: Floats) -> tuple[float, float]:
    """The usual variance, and the degrees of freedom that it is worth for one more set.

    The mean, where the sets are alike or too few to tell.
    """
    mean = float((variances * degrees).sum() / degrees.sum())
    if variances.size < 2 or mean == 0:
        return mean, _KNOWN
    half = degrees / 2
    logs = np.log(np.maximum(variances, 1e-5 * mean)) - special.psi(half) + np.log(half)
    excess = float(logs.var(ddof=1) - special.polygamma(1, half).mean())
    if excess <= 0:
        return mean, _KNOWN
    strength = max(2 * _inverse_trigamma(excess), _LEAST_STRENGTH)
    if variances.size < _LEAST_SETS or np.median(degrees) < _LEAST_DEGREES:
        return mean, strength
    centre = float(logs.mean() + special.psi(strength / 2)) - math.log(strength / 2)
    return min(mean, math.exp(centre)), strength


def _inverse_trigamma(value: float) -> float:
    """By Newton's steps on 1 / trigamma, which is nearly a line (Smyth 2004, appendix)."""
    found = 0.5 + 1 / value
    for _ in range(_NEWTON_STEPS):
        now = float(special.polygamma(1, found))
        step = now * (1 - now / value) / float(special.polygamma(2, found))
        found += step
        if -step < 1e-9 * found:
            break
    return found


def squared_error(
    variance: Floats, n: npt.NDArray[np.int64], is_mean: npt.NDArray[np.bool_]
) -> Floats:
    """Of a figure of n values with this variance each: a median, or a mean where `is_mean`."""
    return variance * np.where(is_mean, 1.0, median_loss(n)) / n


def half_width(variance: Floats, degrees: Floats) -> Floats:
    """Of the 95 % interval of a value with this squared error; NaN where it is not known."""
    found: Floats = student_quantile(degrees, (1 + CONFIDENCE) / 2) * np.sqrt(variance)
    return found


def student_quantile(degrees: Floats, probability: float) -> Floats:
    """Of Student's distribution; NaN without degrees of freedom."""
    wanted = np.asarray(degrees)
    if wanted.size < 2:
        found = special.stdtrit(wanted, probability)
    else:  # few differ, and a quantile is slow
        known, place = np.unique(wanted, return_inverse=True)
        found = special.stdtrit(known, probability)[place].reshape(wanted.shape)
    return np.where(wanted > 0, found, np.nan)
