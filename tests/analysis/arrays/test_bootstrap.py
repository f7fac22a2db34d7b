import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from fleetrank.analysis.arrays.bootstrap import (
    adjust_p,
    percentile_interval,
    permutation_p,
    resample_counts,
    resampled_units,
)
from fleetrank.analysis.arrays.ranking import products

small = hnp.arrays(
    np.float64,
    st.tuples(st.integers(2, 10), st.integers(1, 3)),
    elements=st.integers(-4, 4).map(float),
)


@pytest.mark.slow
@given(small, st.integers(0, 2**32 - 1))
def test_bootstrap_equals_scipy_on_each_resample(values: np.ndarray, seed: int) -> None:
    counts = resample_counts(values.shape[0], 4, np.random.default_rng(seed))
    rhos = np.concatenate([products(some) for some in resampled_units(values, counts)])
    for draw, count in enumerate(counts):
        repeated = np.repeat(values, count, axis=0)
        x, y = repeated[:, 0], repeated[:, -1]
        if np.ptp(x) == 0 or np.ptp(y) == 0:
            assert np.isnan(rhos[draw, 0, -1])
        else:
            expected = stats.spearmanr(x, y).statistic
            assert rhos[draw, 0, -1] == pytest.approx(expected, abs=1e-12)


def test_resamples_draw_as_many_models_as_there_are() -> None:
    counts = resample_counts(13, 100, np.random.default_rng(0))
    assert counts.shape == (100, 13)
    assert (counts.sum(axis=1) == 13).all()


def test_interval_is_the_quantiles_of_the_draws() -> None:
    low, high = percentile_interval(np.arange(1001.0))
    assert (low, high) == pytest.approx((25, 975))


def test_undefined_draws_are_left_out_of_the_interval() -> None:
    draws = np.column_stack([np.arange(4.0), np.full(4, np.nan)])
    draws[0, 0] = np.nan
    low, high = percentile_interval(draws, level=0.5)
    assert (low[0], high[0]) == (1.5, 2.5)
    assert np.isnan([low[1], high[1]]).all()


def slow_exact_p(x: np.ndarray, y: np.ndarray) -> float:
    """In whole numbers, so that nothing is rounded: twice the ranks, less their mean."""
    ranks, others = (2 * stats.rankdata(one) - len(one) - 1 for one in (x, y))
    sums = [abs(ranks @ others[list(o)]) for o in itertools.permutations(range(len(y)))]
    return sum(one >= abs(ranks @ others) for one in sums) / len(sums)


@pytest.mark.parametrize(
    "y",
    [
        [1, 2, 3, 4, 5], [2, 1, 1, 5, 4], [5, 1, 3, 2, 4],
        # Of these, other orders have the same rho and another rounding.
        [1, 2, 1, 3, 1], [1, 1, 3, 2, 4], [1, 2, 2, 1, 2], [1, 2, 3, 4, 1],
    ],
)  # fmt: skip
def test_p_of_few_models_counts_every_order(y: list[int]) -> None:
    x = np.arange(5.0)
    p = permutation_p(np.column_stack([x, y]), 10, np.random.default_rng(0))
    assert p[0, 1] == pytest.approx(slow_exact_p(x, np.array(y)))


def test_drawn_p_adds_one_and_agrees_with_the_t_test() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=40)
    y = x + rng.normal(size=40) * 2.5
    p = permutation_p(np.column_stack([x, y, x]), 4999, np.random.default_rng(0))
    assert p[0, 1] == pytest.approx(stats.spearmanr(x, y).pvalue, abs=0.02)
    assert p[0, 2] == pytest.approx(1 / 5000)


def test_p_of_a_constant_is_undefined() -> None:
    values = np.column_stack([np.arange(9.0), np.ones(9)])
    p = permutation_p(values, 99, np.random.default_rng(0))
    assert np.isnan(p[0, 1])
    assert np.isfinite(p[0, 0])


def test_p_is_the_same_from_both_sides_and_uniform_when_nothing_is_related() -> None:
    values = np.random.default_rng(1).normal(size=(12, 60))
    p = permutation_p(values, 999, np.random.default_rng(0))
    np.testing.assert_array_equal(p, p.T)
    assert (p[np.triu_indices(60, k=1)] < 0.05).mean() == pytest.approx(0.05, abs=0.02)


def test_adjustment_is_scipys_and_keeps_unknown_unknown() -> None:
    assert adjust_p([0.01, None, 0.04]) == pytest.approx([0.02, None, 0.04])
    assert adjust_p([None]) == [None]
    assert adjust_p([]) == []


def test_adjusted_p_values_are_those_of_scipy() -> None:
    p = np.random.default_rng(0).random(30)
    p[:5] = p[0]
    assert adjust_p(p.tolist()) == stats.false_discovery_control(p).tolist()


def test_nan_is_refused() -> None:
    values = np.array([[1.0, np.nan], [2, 3]])
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="NaN"):
        permutation_p(values, 9, rng)
    with pytest.raises(ValueError, match="NaN"):
        next(resampled_units(values, resample_counts(2, 3, rng)))
