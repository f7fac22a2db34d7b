"""Tests between two samples against SciPy and against counting every order."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fleetrank.analysis.arrays.significance import (
    MIN_PAIRS,
    cliffs_delta,
    cohens_d,
    hotelling_t2,
    mann_whitney,
    paired_loss_difference,
    paired_share_difference,
    wilcoxon,
)

tied = st.lists(st.integers(0, 5).map(float), min_size=1, max_size=6).map(np.array)
untied = st.lists(
    st.integers(-50, 50).map(float), min_size=1, max_size=10, unique_by=abs
).map(np.array)  # fmt: skip


def rank_sum_p(a: np.ndarray, b: np.ndarray) -> float:
    ranks = stats.rankdata(np.concatenate([a, b]))
    sums = np.array([sum(some) for some in itertools.combinations(ranks, b.size)])
    seen = ranks[a.size :].sum()
    return min(1.0, 2 * min((sums <= seen).mean(), (sums >= seen).mean()))


@given(tied, tied)
def test_mann_whitney_is_exact_with_ties(a: np.ndarray, b: np.ndarray) -> None:
    assert mann_whitney(a, b)[1] == pytest.approx(rank_sum_p(a, b))


@pytest.mark.slow
@given(untied.filter(lambda values: values.size > 1))
def test_mann_whitney_is_scipys_without_ties(values: np.ndarray) -> None:
    a, b = values[: values.size // 2], values[values.size // 2 :]
    expected = stats.mannwhitneyu(b, a, method="exact")
    assert mann_whitney(a, b) == pytest.approx((expected.statistic, expected.pvalue))


def test_complete_separation_of_five_gives_the_smallest_p() -> None:
    low, high = np.arange(5.0), np.arange(5.0) + 9
    assert mann_whitney(low, high) == (25, pytest.approx(2 / 252))
    assert mann_whitney(low, low)[1] == 1


def test_large_samples_take_the_normal_approximation() -> None:
    a, b = np.arange(40.0), np.arange(40.0) + 8.5
    expected = stats.mannwhitneyu(b, a, method="asymptotic").pvalue
    assert mann_whitney(a, b)[1] == pytest.approx(expected)
    assert mann_whitney(np.ones(40), np.ones(40))[1] == 1


@given(st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=8).map(np.array))
def test_wilcoxon_is_exact_with_ties_and_leaves_zeros_out(values: np.ndarray) -> None:
    known = values[values != 0]
    ranks = stats.rankdata(np.abs(known))
    sums = np.array([np.dot(s, ranks) for s in itertools.product((0, 1), repeat=known.size)])
    seen = ranks[known > 0].sum()
    expected = min(1.0, 2 * min((sums <= seen).mean(), (sums >= seen).mean()))
    assert wilcoxon(values) == pytest.approx(expected)


@pytest.mark.slow
@given(untied.filter(lambda values: (values != 0).all()))
def test_wilcoxon_is_scipys_without_ties(values: np.ndarray) -> None:
    assert wilcoxon(values) == pytest.approx(stats.wilcoxon(values, method="exact").pvalue)


def test_fewest_pairs_are_those_that_can_reach_the_usual_level() -> None:
    assert wilcoxon(np.arange(1.0, MIN_PAIRS + 1)) < 0.05 < wilcoxon(np.arange(1.0, MIN_PAIRS))


@given(tied, tied)
def test_cliffs_delta_by_counting_and_from_u(a: np.ndarray, b: np.ndarray) -> None:
    pairs = list(itertools.product(a, b))
    counted = sum(y > x for x, y in pairs) - sum(y < x for x, y in pairs)
    assert cliffs_delta(a, b) == pytest.approx(counted / len(pairs))
    assert cliffs_delta(a, b) == pytest.approx(2 * mann_whitney(a, b)[0] / len(pairs) - 1)


def test_cohens_d_by_hand() -> None:
    # Means 2 and 4, both of variance 1.
    assert cohens_d(np.array([1.0, 2, 3]), np.array([3.0, 4, 5])) == pytest.approx(2)
    assert cohens_d(np.full(5, 0.1), np.full(5, 0.3)) is None


def test_hotelling_of_one_measure_is_students_t_squared() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(6, 1)), rng.normal(0.5, 1, size=(8, 1))
    found, expected = hotelling_t2(a, b), stats.ttest_ind(a[:, 0], b[:, 0])
    assert found is not None
    assert found.t2 == pytest.approx(expected.statistic**2)
    assert found.p_value == pytest.approx(expected.pvalue)


def test_hotelling_does_not_depend_on_units_and_needs_every_measure_to_vary() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(6, 2)), rng.normal(1, 1, size=(6, 2))
    plain, scaled = hotelling_t2(a, b), hotelling_t2(a * [1e9, 1e-3], b * [1e9, 1e-3])
    assert plain is not None
    assert scaled is not None
    assert scaled.p_value == pytest.approx(plain.p_value)
    a[:, 1] = b[:, 1] = 70.0
    assert hotelling_t2(a, b) is None
    assert hotelling_t2(a[:1], b[:1]) is None


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        mann_whitney(np.array([np.nan]), np.array([1.0]))
    with pytest.raises(ValueError, match="NaN"):
        wilcoxon(np.array([np.nan]))


def test_the_interval_of_paired_shares_is_the_published_one() -> None:
    """Bonett and Price 2012: 10 of 100 items lost and 5 gained, by hand."""
    difference, low, high = paired_share_difference(10, 5, 100)
    assert difference == pytest.approx(-0.05)
    assert (low, high) == pytest.approx((-0.127673, 0.029634), abs=1e-6)
    gained = paired_share_difference(5, 10, 100)
    assert gained == pytest.approx((0.05, -high, -low))
    assert paired_share_difference(0, 1, 1)[2] == 1.0


def test_the_loss_of_a_token_is_weighed_by_the_tokens_of_a_window() -> None:
    losses, counts = np.array([2.0, 1.0, 0.0, 4.0]), np.array([2.0, 2.0, 1.0, 5.0])
    difference, low, high = paired_loss_difference(losses, counts)
    # Residuals 0.6, -0.4, -0.7 and 0.5 of 10 tokens; t of 3 degrees is 3.182.
    half = 3.18245 * math.sqrt(4 / 3 * (0.36 + 0.16 + 0.49 + 0.25)) / 10
    assert (difference, high - difference) == pytest.approx((0.7, half), rel=1e-5)
    assert low == pytest.approx(0.7 - half, rel=1e-5)
    # A constant loss of each token has no spread, however long the windows are.
    assert paired_loss_difference(counts / 2, counts) == pytest.approx((0.5, 0.5, 0.5))
    assert math.isnan(paired_loss_difference(losses[:1], counts[:1])[1])
