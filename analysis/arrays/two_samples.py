"""Which of two is faster? One rule for the processes of both, for every table and command.

The figure of a sample is the median of its processes, that of a model that took turns with others
their geometric mean. Its error comes from the spread of its processes, drawn to that of the samples
measured alike (`arrays.interval`). Everything is said of the log ratio of two figures and its 95 %
interval: B is slower or faster if the interval lies beyond 1, the same as A if it lies inside the
margin.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from fleetrank.analysis.arrays.interval import (
    CONFIDENCE,
    half_width,
    shrunk_by,
    squared_error,
    student_quantile,
)
from fleetrank.analysis.arrays.ranking import Floats, require_finite

ALPHA = 1 - CONFIDENCE
PRIOR_SPREAD = 0.1
"""Spread of log latency between sessions of a host, before any model was measured in two.

Eight runs of one model in ten minutes on a shared host: 5 % among the calm ones, 35 % among all.
"""
PRIOR_DEGREES = 3
"""What that counts as: three sessions that were compared."""
OWN_DEGREES = 4
"""From so many on, sessions other than the compared ones need no prior: of 10 that spread by 1 %,
two then differ by up to 3 % in place of 16 %."""
ONE_SESSION = (0.0, math.inf)
"""What two figures of one session add to their ratio, as `between_sessions` has it: nothing."""
POWER = 0.8
"""Probability of a decision that a number of repeats is planned for (Cohen 1988, 2.4)."""
MAX_PLANNED = 1000
"""Repeats a side: a week of a cell's time at 10 minutes each; another host is the better remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What counts as a change.

    Attributes:
        margin: the largest relative change that is of no interest, above 0: 0.05 is 5 %. A ratio
            is inside the margin from 1 / (1 + margin) to 1 + margin.
        alpha: probability of a wrong claim, as a false discovery rate over all tested changes.
    """

    margin: float
    alpha: float

    @property
    def bound(self) -> float:
        """The margin as a log ratio."""
        return math.log1p(self.margin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Figures of samples and their errors, as logarithms; arrays of one shape.

    Attributes:
        logs: NaN where a value is 0.
        variance: of the log of one process; NaN where nothing shows the spread.
        degrees: of freedom of the variance; 0 where nothing shows it.
        n: processes.
        took_turns: the figure is a mean, of processes that took turns with those of other models.
    """

    logs: Floats
    variance: Floats
    degrees: Floats
    n: npt.NDArray[np.int64]
    took_turns: npt.NDArray[np.bool_]

    @property
    def errors(self) -> Floats:
        """Standard error of each figure; NaN where nothing shows it."""
        return np.sqrt(squared_error(self.variance, self.n, self.took_turns))

    @property
    def reach(self) -> Floats:
        """Half-width of the 95 % interval of each figure; NaN where it is not known."""
        return half_width(self.errors**2, self.degrees)

    def at(self, place: slice | npt.ArrayLike | tuple[npt.ArrayLike, ...]) -> "Figures":
        """Those at some places of the arrays."""
        return Figures(**{one.name: getattr(self, one.name)[place] for one in fields(self)})


def figures_of(
    samples: Sequence[Floats], took_turns: Sequence[bool], alike: Sequence[str]
) -> Figures:
    """The figures of samples, of (n,) values from 0 on each.

    Args:
        samples: latencies of processes.
        took_turns: of each sample, whether its processes took turns with others.
        alike: of each sample, the name of those that say together how far processes spread.
    """
    is_mean = np.array(took_turns, dtype=np.bool_)
    n = np.array([one.size for one in samples], dtype=np.int64)
    logs, squares = np.full(n.size, np.nan), np.zeros(n.size)
    for at, sample in enumerate(samples):
        require_finite(sample)
        if sample.min(initial=1.0) > 0:
            own = np.log(sample)
            logs[at] = own.mean() if is_mean[at] else math.log(np.median(sample))
            # Rounding gives equal values a small variance.
            squares[at] = 0.0 if np.ptp(own) == 0 else own.var() * own.size
    degrees = np.where(np.isfinite(logs), n - 1.0, 0.0)
    variance, freedom = shrunk_by(squares, degrees, np.ones_like(is_mean), np.array(alike))
    return Figures(logs=logs, variance=variance, degrees=freedom, n=n, took_turns=is_mean)


class Verdict(StrEnum):
    """What is shown of B compared with A; exactly one applies. The order is that of tables."""

    SLOWER = "slower"
    """The interval of the ratio lies above 1, and not inside the margin."""
    FASTER = "faster"
    """It lies below 1, and not inside the margin."""
    UNDECIDED = "undecided"
    """Neither a change nor its absence is shown."""
    SAME = "same"
    """It lies inside the margin."""
    REFUSED = "refused"
    """Measured in both sweeps, but not comparable."""
    ONE_SIDED = "one_sided"
    """Measured in one of the two sweeps only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRatios:
    """Log ratios, B over A; arrays of one shape.

    Attributes:
        estimates: NaN where a figure is missing.
        errors: their standard errors; NaN where nothing shows the spread.
        degrees: of freedom of the errors.
        between: of the errors the part that two sessions add and more processes do not remove, as
            half-width and degrees; 0 wide inside one session. `None`: all are of one session.
    """

    estimates: Floats
    errors: Floats
    degrees: Floats
    between: tuple[Floats, Floats] | None = None

    def reach(self, alpha: float = ALPHA) -> Floats:
        """Half-width of the 1 - alpha interval; NaN where it is not known."""
        found: Floats = student_quantile(self.degrees, 1 - alpha / 2) * self.errors
        return found

    def p_different(self) -> Floats:
        """Of "the ratio is 1": at most alpha exactly if the 1 - alpha interval excludes it."""
        return np.minimum(2 * self._p_inside(np.abs(self.estimates)), 1.0)

    def p_margin(self, bound: float) -> tuple[Floats, Floats]:
        """One-sided p of "slower by the margin or more", and of "faster by the margin or more".

        If twice the larger one is at most alpha, the 1 - alpha interval lies inside the margin.
        Source: Schuirmann 1987.
        """
        return self._p_inside(bound - self.estimates), self._p_inside(bound + self.estimates)

    def _p_inside(self, distances: Floats) -> Floats:
        """Of estimates this far inside a bound, if the truth lies on it."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found = special.stdtr(self.degrees, -distances / self.errors)
        exact = np.where(self.errors == 0, (distances <= 0).astype(np.float64), found)
        return np.where(np.isfinite(self.errors + distances), exact, np.nan)


def log_ratios(
    estimates: Floats,
    *figures: tuple[Floats, Floats],
    between: tuple[Floats, Floats] | None = None,
) -> LogRatios:
    """Log ratios with the errors of their parts: both figures, and what two sessions add.

    The interval is the root of the sum of the squares of those of the parts. Its degrees of freedom
    are those of Satterthwaite (1946) for parts that err together, because their variances are drawn
    to the same one: of parts with equal degrees as many, and then the interval is Student's.

    Args:
        estimates: figures of B over those of A.
        figures: half-width of the 95 % interval and degrees of freedom of each.
        between: likewise, of what two sessions add.
    """
    parts = figures if between is None else (*figures, between)
    squares = [(reach / student_quantile(freedom, 1 - ALPHA / 2)) ** 2 for reach, freedom in parts]
    total = sum(squares)
    fewest = np.minimum.reduce(np.broadcast_arrays(*(freedom for _, freedom in parts)))
    rates = sum(
        square / np.sqrt(np.maximum(freedom, 1.0))
        for square, (_, freedom) in zip(squares, parts, strict=True)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        degrees = np.where(total > 0, (total / rates) ** 2, fewest)
    reach = np.sqrt(sum(reach**2 for reach, _ in parts))
    return LogRatios(
        estimates=estimates,
        errors=reach / student_quantile(degrees, 1 - ALPHA / 2),
        degrees=degrees,
        between=between,
    )


def ratios_of(a: Figures, b: Figures, between: tuple[Floats, Floats] | None = None) -> LogRatios:
    """Figures of B over those of A, with the errors of both, and of two sessions (`log_ratios`)."""
    sides = ((one.reach, one.degrees) for one in (a, b))
    return log_ratios(b.logs - a.logs, *sides, between=between)


class Sessions(NamedTuple):
    """What two sessions add to a log ratio.

    Attributes:
        reach, degrees: half-width of its 95 % interval, and its degrees of freedom.
        n: sessions that say so; 0 if none measured what another did.
        has_prior: `PRIOR_SPREAD` counts, too.
    """

    reach: float
    degrees: float
    n: int
    has_prior: bool


def between_sessions(logs: Floats, *, are_others: bool = False) -> Sessions:
    """What two sessions add, from models that several sessions measured.

    A session moves all models alike, so that further models are no further sessions.

    Args:
        logs: of figures, NaN where a session lacks the model, (n_models, n_sessions).
        are_others: no figure of these sessions is in the ratio. Else the prior always counts: of
            six sessions, no two differ by more than Student's interval from all six.
    """
    known = np.isfinite(logs)
    counts = np.maximum(known.sum(axis=1, keepdims=True), 1)
    freedom = int((counts - 1).sum())
    filled = np.where(known, logs, 0.0)
    mean = filled.sum(axis=1, keepdims=True) / counts
    squares = np.where(known, (logs - mean) ** 2, 0.0).sum()
    # Differences of sessions that their common models show: of two sessions without any, none.
    shared = np.diag(known.sum(axis=0)) - (known / counts).T @ known
    sessions = int(np.linalg.matrix_rank(shared))
    seen = squares / freedom if freedom else 0.0
    prior = 0 if are_others and sessions >= OWN_DEGREES else PRIOR_DEGREES
    degrees = prior + sessions
    variance = (prior * PRIOR_SPREAD**2 + sessions * seen) / degrees
    quantile = float(special.stdtrit(degrees, 1 - ALPHA / 2))
    n = sessions + 1 if sessions else 0
    return Sessions(quantile * math.sqrt(2 * variance), float(degrees), n, prior > 0)


def shown(
    found: LogRatios,
    p: Floats,
    p_same: Floats,
    *,
    least: float = 0.0,
    alpha: float = ALPHA,
) -> npt.NDArray[np.str_]:
    """What is shown of each ratio, a `Verdict` each; where nothing shows the spread, undecided.

    Args:
        found: the ratios.
        p: of a change, perhaps adjusted over many.
        p_same: of their absence, likewise.
        least: smallest estimated log ratio that is a change.
        alpha: the largest p that shows something.
    """
    is_change = p <= alpha
    return np.select(
        [
            p_same <= alpha,
            is_change & (found.estimates >= least),
            is_change & (found.estimates <= -least),
        ],
        [Verdict.SAME, Verdict.SLOWER, Verdict.FASTER],
        Verdict.UNDECIDED,
    )
