"""Finds the steps of several courses of values: where a level changes and stays changed.

The courses of the models of one platform have the host in common. What they share is taken out
first, which separates a step of one model from a drift of the host.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from fleetrank.analysis.arrays.interval import shrunk, student_quantile
from fleetrank.analysis.arrays.ranking import Floats

ALPHA = 0.05
"""The rate of platforms without a change on which a step is reported."""
LEAST_TOGETHER = 3
"""Courses from which on what is common is known from what one does: of two, neither is usual."""
LEAST_VALUES = 3
"""Values of a course in which a step can be found: two levels, and one spread."""
_ROUNDS = 50
_LEAST_SPREAD = 1e-6
_OF_MEDIAN = 1.4826
"""The standard deviation of normal values over their median absolute deviation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelStep:
    """A change of the level of one course.

    Attributes:
        course: its row.
        at: position of the first value of the new level.
        change, low, high: difference of the levels after and before, with an interval that holds
            for all steps together.
        n_before, n_after: values of the two levels.
    """

    course: int
    at: int
    change: float
    low: float
    high: float
    n_before: int
    n_after: int


def common_course(values: Floats) -> Floats:
    """What all courses of (n_courses, n_values) share at each position, (n_values,).

    By median polish (Tukey 1977), around a median of 0. NaN where no course has a value, and
    everywhere with fewer than `LEAST_TOGETHER` courses.
    """
    found = np.full(values.shape[1], np.nan)
    known = np.isfinite(values)
    used = known.any(axis=0)
    if known.any(axis=1).sum() < LEAST_TOGETHER:
        return found
    rows = values[known.any(axis=1)][:, used]
    common = np.zeros(rows.shape[1])
    for _ in range(_ROUNDS):
        levels = np.nanmedian(rows - common, axis=1, keepdims=True)
        renewed = np.nanmedian(rows - levels, axis=0)
        if np.allclose(renewed, common, rtol=0, atol=1e-9):
            break
        common = renewed
    found[used] = common - np.median(common)
    return found


def level_steps(values: Floats, least: float, *, n_shared: int = 0) -> list[LevelStep]:
    """The steps of courses, sorted by course and position.

    `ruptures.Pelt` proposes them (Killick 2012: the least squares, and a penalty of 2 log n
    variances for each step). Of those, the weakest is taken back until each is significant: its
    interval by Student's t excludes 0 at ALPHA over all beginnings and ends of a level in all
    courses (Bonferroni), and it is at least `least`.

    Args:
        values: (n_courses, n_values); NaN where a course has none.
        least: the smallest change of interest, above 0.
        n_shared: values that were taken out of all courses together: degrees of freedom less.
    """
    positions = [np.flatnonzero(np.isfinite(row)) for row in values]
    usable = [at for at, found in enumerate(positions) if found.size >= LEAST_VALUES]
    if not usable:
        return []
    courses = {at: values[at, positions[at]] for at in usable}
    bounds = _proposed(courses)
    n_tests = sum(math.comb(course.size, 2) for course in courses.values())
    while True:
        steps = _judged(courses, bounds, n_tests, n_shared)
        # A step without an interval is not shown: comparisons with NaN are false.
        weak = [
            one for one in steps if not (abs(one.change) >= least and (one.low > 0 or one.high < 0))
        ]
        if not weak:
            break
        one = min(
            weak, key=lambda step: abs(step.change) / max(step.high - step.low, _LEAST_SPREAD)
        )
        bounds[one.course].remove(one.at)
    return [replace(one, at=int(positions[one.course][one.at])) for one in steps]


def _proposed(courses: Mapping[int, Floats]) -> dict[int, list[int]]:
    """Where PELT lets new levels begin; the differences of neighbours say what a spread is."""
    import ruptures  # loads SciPy's statistics and a compiled part

    deviations = [np.median(np.abs(np.diff(course))) for course in courses.values()]
    spread = max(_OF_MEDIAN * float(np.median(deviations)) / math.sqrt(2), _LEAST_SPREAD)
    found = {}
    for at, course in courses.items():
        search = ruptures.Pelt(model="l2", min_size=1, jump=1).fit(course)
        begins = search.predict(pen=2 * math.log(course.size) * spread**2)
        found[at] = [int(one) for one in begins[:-1]]
    return found


def _judged(
    courses: dict[int, Floats], bounds: dict[int, list[int]], n_tests: int, n_shared: int
) -> list[LevelStep]:
    """Every proposed step with its interval; the spread of few values is drawn to the usual one."""
    parts = {at: np.split(course, bounds[at]) for at, course in courses.items()}
    squares = np.array([sum(((one - one.mean()) ** 2).sum() for one in parts[at]) for at in parts])
    degrees = np.array([float(courses[at].size - len(parts[at])) for at in parts])
    degrees *= max(1 - n_shared / max(degrees.sum(), 1.0), 0.0)
    variances, freedom = shrunk(squares, degrees, np.ones(len(parts), dtype=np.bool_))
    reach = student_quantile(freedom, 1 - ALPHA / 2 / n_tests) * np.sqrt(variances)
    steps = []
    for (course, levels), width in zip(parts.items(), reach.tolist(), strict=True):
        for at, (before, after) in zip(bounds[course], pairwise(levels), strict=True):
            half = width * math.sqrt(1 / before.size + 1 / after.size)
            change = float(after.mean() - before.mean())
            steps.append(
                LevelStep(
                    course=course, at=at, change=change, low=change - half, high=change + half,
                    n_before=before.size, n_after=after.size,
                )
            )  # fmt: skip
    return steps
