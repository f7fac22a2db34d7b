"""Slope, knee and what fits: against SciPy and by hand."""

import numpy as np
import pytest
from scipy import stats
from wording import has

from fleetrank.analysis.statistics.scaling.curves import find_fit, find_knee, power_fit


def test_the_fit_is_scipys_line_through_the_logarithms() -> None:
    rng = np.random.default_rng(1)
    x = [1, 2, 4, 8, 16, 32]
    y = [3.0 * value**0.8 * float(np.exp(rng.normal(0, 0.2))) for value in x]
    found, wanted = power_fit(x, y), stats.linregress(np.log(x), np.log(y))
    assert found is not None
    assert found.slope == pytest.approx(wanted.slope)
    assert found.r2 == pytest.approx(wanted.rvalue**2)


def test_a_constant_has_slope_0_and_no_r2() -> None:
    found = power_fit([1, 2, 4], [5.0, 5.0, 5.0])
    assert found is not None
    assert (found.slope, found.r2) == (pytest.approx(0), None)


def test_two_points_have_no_line() -> None:
    assert power_fit([1, 2], [1.0, 3.0]) is None
    assert power_fit([1, 2, 2], [1.0, 3.0, 3.1]) is None


def test_the_knee_is_the_first_batch_whose_double_pays_less_than_a_fifth() -> None:
    # gains 1.9, 1.3, 1.1, 1.5
    rates = dict(zip([1, 2, 4, 8, 16], np.cumprod([100, 1.9, 1.3, 1.1, 1.5]), strict=True))
    assert find_knee(rates).value == 4


def test_exactly_a_fifth_still_pays() -> None:
    assert find_knee({1: 10.0, 2: 12.0}).value is None
    assert find_knee({1: 10.0, 2: 11.99}).value == 1


def test_without_a_knee_the_reason_names_the_largest_batch() -> None:
    found = find_knee({1: 1.0, 2: 2.0, 4: 4.0})
    assert (found.value, found.reason) == (None, "none up to 4")


def test_a_gap_below_the_knee_leaves_it_open() -> None:
    found = find_knee({1: 1.0, 4: 4.0, 8: 4.1})
    assert (found.value, found.reason) == (None, "2 not measured")


def test_one_batch_has_no_knee() -> None:
    assert find_knee({8: 1.0}).reason == "one value measured"


def test_the_largest_that_fits_is_below_the_first_that_does_not() -> None:
    found = find_fit([1, 2, 4], [8, 16])
    assert (found.largest, found.first_too_large, found.reason) == (4, 8, None)


def test_nothing_is_said_to_fit_if_nothing_ran_out_of_memory() -> None:
    assert find_fit([1, 2, 4], []).largest is None


def test_a_larger_batch_that_fits_is_named_as_a_contradiction() -> None:
    found = find_fit([1, 2, 8], [4])
    assert found.largest == 2
    assert has(found.reason or "", "4", "8")
