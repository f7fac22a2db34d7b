"""Reliability of rankings, against slow and obvious versions."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from fleetrank.analysis.arrays.bootstrap import resampled_medians
from fleetrank.analysis.arrays.reliability import (
    reliability_interval,
    retest_reliability,
    spearman_brown,
    split_halves,
    split_reliability,
)

series = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 9), st.integers(1, 6)),
    elements=st.integers(1, 6).map(float),
)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def noisy(n_models: int, n_repeats: int, noise: float, seed: int = 0) -> np.ndarray:
    draw = rng(seed)
    true = draw.normal(size=(n_models, 1))
    return np.exp(true + noise * draw.normal(size=(n_models, n_repeats)))


@pytest.mark.slow
@given(series)
def test_halves_are_medians_of_two_disjoint_parts_of_a_models_repeats(values: np.ndarray) -> None:
    halves, lengthening = split_halves(values[None], 5, rng())
    for row, repeats in enumerate(values):
        half = len(repeats) // 2
        if half == 0:
            assert np.isnan(halves[:, row]).all()
            assert np.isnan(lengthening[row])
            continue
        assert lengthening[row] == len(repeats) / half
        possible = [
            (np.log(np.median(repeats[list(a)])), np.log(np.median(repeats[list(b)])))
            for a in itertools.combinations(range(len(repeats)), half)
            for b in itertools.combinations(sorted(set(range(len(repeats))) - set(a)), half)
        ]
        for pair in halves[:, row].T:
            assert any(np.allclose(pair, one) for one in possible)


def test_repeat_without_a_part_is_left_out() -> None:
    parts = np.array([[[2.0, 4, 8]], [[1, np.nan, 1]]])
    halves, lengthening = split_halves(parts, 8, rng())
    assert lengthening.tolist() == [2]
    assert set(np.exp(halves).round(9).ravel()) == {2, 8}


def test_spearman_brown_by_hand() -> None:
    assert spearman_brown(np.array(0.5), 2) == pytest.approx(2 / 3)
    assert spearman_brown(np.array(0.8), 2.5) == pytest.approx(2.5 * 0.8 / (1 + 1.5 * 0.8))
    assert spearman_brown(np.array(1.0), 2) == pytest.approx(1)
    assert spearman_brown(np.array(-0.3), 2) == 0


def test_split_reliability_is_spearman_brown_of_scipys_mean_rho() -> None:
    halves, lengthening = split_halves(noisy(11, 4, 0.7)[None], 30, rng())
    rho = np.mean(
        [stats.spearmanr(a, b).statistic for a, b in zip(*halves.swapaxes(1, 2), strict=True)]
    )
    assert split_reliability(halves, lengthening) == pytest.approx(2 * rho / (1 + rho))


@pytest.mark.parametrize(("n_repeats", "noise"), [(2, 0.5), (2, 1.0), (6, 1.0)])
def test_reliability_is_that_of_the_whole_series(n_repeats: int, noise: float) -> None:
    # Two whole series of the same models agree as well as the split of one of them says.
    whole = noisy(3000, 2 * n_repeats, noise)
    first, second = whole[:, :n_repeats], whole[:, n_repeats:]
    halves, lengthening = split_halves(first[None], 20, rng())
    truth = stats.spearmanr(np.median(first, axis=1), np.median(second, axis=1)).statistic
    assert split_reliability(halves, lengthening) == pytest.approx(truth, abs=0.04)


def test_repeats_that_agree_fully_have_reliability_one() -> None:
    values = np.repeat(np.arange(1.0, 8)[:, None], 3, axis=1)
    halves, lengthening = split_halves(values[None], 10, rng())
    assert split_reliability(halves, lengthening) == pytest.approx(1)
    interval = split_halves(np.repeat(np.arange(1.0, 13)[:, None], 3, axis=1)[None], 10, rng())
    assert reliability_interval(*interval, rng()) == pytest.approx((1, 1))


def test_reliability_is_undefined_for_four_models_equal_models_and_opposed_halves() -> None:
    four = split_halves(noisy(4, 4, 0.1)[None], 10, rng())
    equal = split_halves(np.ones((1, 6, 4)), 10, rng())
    opposed = np.stack([np.arange(6.0)[:, None], np.arange(6.0)[::-1, None]])
    assert np.isnan(split_reliability(*four))
    assert np.isnan(split_reliability(*equal))
    assert np.isnan(split_reliability(opposed, np.full(6, 2.0)))


def test_interval_of_reliability_comes_from_nine_models_on_and_holds_it() -> None:
    for n_models in (8, 9, 40):
        halves, lengthening = split_halves(noisy(n_models, 4, 0.8)[None], 50, rng())
        interval = reliability_interval(halves, lengthening, rng())
        if n_models < 9:
            assert interval is None
            continue
        assert interval is not None
        assert interval[0] <= split_reliability(halves, lengthening) <= interval[1]


def test_retest_is_the_mean_of_scipys_rho_over_pairs_of_sweeps() -> None:
    sweeps = noisy(9, 3, 0.6)
    sweeps[[0, 4], 1] = np.nan
    rhos = []
    for i, j in ((0, 1), (0, 2), (1, 2)):
        both = np.isfinite(sweeps[:, [i, j]]).all(axis=1)
        rhos.append(stats.spearmanr(sweeps[both, i], sweeps[both, j]).statistic)
    assert retest_reliability(sweeps)[0] == pytest.approx(np.mean(rhos))
    assert retest_reliability(sweeps)[1] == 9
    assert retest_reliability(sweeps[:, :2])[1] == 7


def test_retest_needs_two_sweeps_of_five_models() -> None:
    assert np.isnan(retest_reliability(noisy(9, 1, 0.1))[0])
    sweeps = noisy(9, 2, 0.1)
    sweeps[:5, 1] = np.nan
    assert np.isnan(retest_reliability(sweeps)[0])
    assert retest_reliability(sweeps)[1] == 0


def test_resampled_medians_spread_as_bootstrap_of_the_median_does() -> None:
    repeats = np.array([[1.0, 2, 4, 8, 16], [3, 3, 3, np.nan, np.nan], [np.nan] * 5])
    medians = resampled_medians(repeats, 4000, rng())
    assert set(medians[:, 0]) == {1, 2, 4, 8, 16}
    # The median of 5 draws is the least value only with 3 or more of them there.
    least = sum(stats.binom.pmf(k, 5, 0.2) for k in (3, 4, 5))
    assert (medians[:, 0] == 1).mean() == pytest.approx(least, abs=0.015)
    assert set(medians[:, 1]) == {3}
    assert np.isnan(medians[:, 2]).all()
