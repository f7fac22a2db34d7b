"""From which length on is another way to read a text faster than reading it at once? On arrays."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.ranking import Floats

_HALVINGS = 60
"""Of an interval of lengths; the last one is far below a token."""
_EXACT = 1e-6
"""Relative difference from a quadratic that rounding to whole operations stays below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """A way to read a text by the same inference, again and again.

    Attributes:
        first: tokens that the first inference reads.
        step: new tokens that each further one reads: of a sliding window its stride, of segments
            their length.
    """

    first: int
    step: int

    def inferences(self, tokens: int) -> int:
        """Inferences that read so many tokens; the last one may be partly filled."""
        return 1 + max(0, -(-(tokens - self.first) // self.step))

    def share(self, tokens: Floats) -> Floats:
        """Inferences without rounding up: equal to `inferences` where the last one is full."""
        return 1 + (tokens - self.first) / self.step


def time_at(lengths: Floats, times: Floats, tokens: Floats) -> Floats:
    """Time to read so many tokens at once, between measured lengths.

    The time per token is interpolated, linear in the length: exact for a T + b T^2, which is what
    products of the weights and of attention cost. A line in logarithms lies above that curve: it
    put crossovers 3 to 10 % too low, and in simulations their intervals held a known crossover in
    18 % of data sets or fewer, instead of 95 to 99 %.

    Args:
        lengths: (n,), rising.
        times: (draws, n).
        tokens: (draws,), inside the range of `lengths`.
    """
    after = np.clip(np.searchsorted(lengths, tokens), 1, lengths.size - 1)
    before, each = after - 1, np.arange(times.shape[0])
    share = (tokens - lengths[before]) / (lengths[after] - lengths[before])
    per_token = times / lengths
    between = per_token[each, before] * (1 - share) + per_token[each, after] * share
    return tokens * between


def crossings(lengths: Floats, times: Floats, one: Floats, repetition: Repetition) -> Floats:
    """Length from which on the repetition is faster at every compared length, (draws,).

    Minus infinity if it is faster at all of them, infinity if it is slower at the last one.

    Args:
        lengths: (n,), rising, n at least 1, none below `repetition.first`.
        times: (draws, n), to read each length at once.
        one: (draws,), one inference of the repetition.
        repetition: how many of these read a text.
    """
    is_slower = _repeated(one[:, None], lengths, repetition) >= times
    n = lengths.size
    last = n - 1 - np.argmax(is_slower[:, ::-1], axis=1)
    found = np.where(is_slower.any(axis=1), np.inf, -np.inf)
    inside = np.flatnonzero(is_slower.any(axis=1) & (last < n - 1))
    if inside.size:
        low, high = lengths[last[inside]], lengths[last[inside] + 1]
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            at_once = time_at(lengths, times[inside], middle)
            slower = _repeated(one[inside], middle, repetition) >= at_once
            low, high = np.where(slower, middle, low), np.where(slower, high, middle)
        found[inside] = high
    return found


def _repeated(one: Floats, tokens: Floats, repetition: Repetition) -> Floats:
    times: Floats = one * repetition.share(tokens)
    return times


def changes_of_order(lengths: Floats, times: Floats, one: float, repetition: Repetition) -> int:
    """How often the faster way changes along the compared lengths; more than once is noise."""
    is_slower = one * repetition.share(lengths) >= times
    return int(np.count_nonzero(is_slower[1:] != is_slower[:-1]))


def end_points(draws: Floats, level: float = 0.95) -> tuple[float, float]:
    """Percentile interval of (draws,) that may hold infinities: an end is one of the draws.

    Source: Efron and Tibshirani 1993, chapter 13.
    """
    ordered, tail = np.sort(draws), (1 - level) / 2
    low = int(np.floor(tail * (draws.size - 1)))
    high = int(np.ceil((1 - tail) * (draws.size - 1)))
    return float(ordered[low]), float(ordered[high])


def crossing_by_operations(
    lengths: npt.NDArray[np.int64], operations: Floats, one: float, repetition: Repetition
) -> float | None:
    """Length from which on the repetition needs fewer operations; its first length if always.

    The operations to read T tokens at once are a quadratic of T, because an exported graph compares
    every token with all T, masked or not. So three lengths determine them, and
    f0 + f1 T + f2 T^2 = one (1 + (T - first) / step) has two roots; the larger one counts.

    Args:
        lengths: (n,), unlike.
        operations: (n,), of one inference that reads each length at once.
        one: operations of one inference of the repetition.
        repetition: how many of these read a text.

    Returns:
        `None` with fewer than three lengths, for operations that do not follow a quadratic, or for
        a quadratic without a square: a network without attention.
    """
    if lengths.size < 3:
        return None
    scale = float(lengths.max())
    fitted = np.polynomial.Polynomial.fit(lengths / scale, operations, 2, domain=[-1, 1])
    f0, f1, f2 = (float(one) for one in fitted.convert().coef.tolist())
    misfit = np.abs(fitted(lengths / scale) - operations) / operations
    if misfit.max() > _EXACT or f2 <= _EXACT * operations.max():
        return None
    slope, start = one / repetition.step * scale, repetition.first / scale
    constant = one * (1 - repetition.first / repetition.step)
    # A positive square: the repetition is cheaper beyond the larger root, always without one.
    discriminant = (f1 - slope) ** 2 - 4 * f2 * (f0 - constant)
    if discriminant < 0:
        return float(repetition.first)
    root = (slope - f1 + np.sqrt(discriminant)) / (2 * f2)
    return float(max(root, start) * scale)
