"""Intervals of medians of few values, against simulation and textbook figures."""

from itertools import product

import numpy as np
import pytest
from daily import daily
from scipy import stats

from fleetrank.analysis.arrays.interval import half_width, median_loss, shrunk, squared_error


@pytest.mark.parametrize("n", [1, 3, 4, 5, 10, 15, 16])
def test_the_loss_of_a_median_is_the_simulated_one(n: int) -> None:
    drawn = np.random.default_rng(0).standard_normal((60_000, n))
    found = n * np.median(drawn, axis=1).var()
    assert 0.98 * found < median_loss(np.array([n]))[0] < 1.1 * found


def test_without_a_reason_to_differ_all_sets_have_the_pooled_variance() -> None:
    variance, degrees = shrunk(np.full(4, 0.4), np.full(4, 4.0), np.ones(4, bool))
    np.testing.assert_allclose(variance, 0.1)
    np.testing.assert_allclose(degrees, 16)
    single = shrunk(np.array([0.4, 0.0]), np.array([4.0, 0.0]), np.ones(2, bool))
    assert [one[1] for one in single] == [pytest.approx(0.1), 4]
    nothing = shrunk(np.zeros(2), np.zeros(2), np.ones(2, bool))
    assert np.isnan(nothing[0]).all()


def test_the_half_width_is_student_s() -> None:
    found = half_width(np.array([0.04, 0.04, np.nan]), np.array([4.0, 1e6, 0.0]))
    np.testing.assert_allclose(found[:2], 0.2 * stats.t.ppf(0.975, [4, 1e6]))
    assert np.isnan(found[2])


def test_a_median_of_few_values_has_a_larger_error_than_their_mean() -> None:
    found = squared_error(np.full(2, 0.5), np.full(2, 10), np.array([True, False]))
    np.testing.assert_allclose(found, [0.05, 0.05 * 1.383])


@pytest.mark.parametrize(
    ("n", "tails", "spread"),
    daily(
        product([2, 3, 5, 10], [np.inf, 5], [1.0, 3.0]),
        (2, np.inf, 3.0), (3, 5, 1.0), (5, 5, 3.0), (10, np.inf, 1.0),
    ),
)  # fmt: skip
def test_ratios_are_covered_as_often_as_the_interval_says(
    n: int, tails: float, spread: float
) -> None:
    """Six models whose noise differs by up to `spread`; those of heavy tails are a bit too wide."""
    rng, inside = np.random.default_rng(n), []
    i, j = np.triu_indices(6, 1)
    for _ in range(250):
        scale = rng.permutation(0.03 * np.geomspace(spread**-0.5, spread**0.5, 6))
        drawn = rng.standard_normal((6, n)) if tails == np.inf else rng.standard_t(tails, (6, n))
        logs = scale[:, None] * drawn
        squares = ((logs - logs.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
        variance, degrees = shrunk(squares, np.full(6, n - 1.0), np.ones(6, bool))
        error = squared_error(variance, np.full(6, n), np.zeros(6, bool))
        reach = half_width(error, degrees)
        medians = np.median(logs, axis=1)
        inside += (np.abs(medians[i] - medians[j]) <= np.hypot(reach[i], reach[j])).tolist()
    assert 0.925 < np.mean(inside) < 0.985


def test_a_set_that_is_far_from_usual_widens_only_itself() -> None:
    squares = 0.004 * np.random.default_rng(1).chisquare(4, 8)
    calm, _ = shrunk(squares, np.full(8, 4.0), np.ones(8, bool))
    with_loud, degrees = shrunk(np.append(squares, 9.0), np.full(9, 4.0), np.ones(9, bool))
    np.testing.assert_allclose(with_loud[:8], calm)
    assert (with_loud[8], degrees[8]) == (9 / 4, 4)
