"""Ranks inside each pair, against SciPy pair by pair."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy import stats

from fleetrank.analysis.arrays.ranking import _MAX_SHORT, spearman_common, spearman_matrix

NAN = math.nan
tied = arrays(
    np.float64,
    array_shapes(min_dims=2, max_dims=2, max_side=7),
    elements=st.sampled_from([NAN, -1.0, 0.0, 1.0, 2.0]),
)


def pairwise(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    size = values.shape[1]
    rho, common = np.full((size, size), NAN), np.zeros((size, size), dtype=int)
    for i in range(size):
        for j in range(size):
            both = np.isfinite(values[:, i]) & np.isfinite(values[:, j])
            common[i, j] = both.sum()
            if both.sum() >= 2:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    rho[i, j] = stats.spearmanr(values[both, i], values[both, j]).statistic
    return rho, common


@pytest.mark.slow
@given(tied)
def test_ties_and_missing_are_as_in_scipy(values: np.ndarray) -> None:
    rho, common = spearman_common(values)
    expected, counts = pairwise(values)
    assert rho == pytest.approx(expected, abs=1e-12, nan_ok=True)
    assert (common == counts).all()


@pytest.mark.slow
@pytest.mark.parametrize("block", [1, 500])
def test_blocks_of_pairs_change_nothing(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(30, 21))
    values[rng.random(values.shape) < 0.2] = NAN
    monkeypatch.setattr("fleetrank.analysis.arrays.ranking._BLOCK_VALUES", block)
    expected, _ = pairwise(values)
    assert spearman_common(values)[0] == pytest.approx(expected, abs=1e-12)


def test_without_missing_values_it_is_the_plain_matrix() -> None:
    values = np.random.default_rng(1).normal(size=(40, 9))
    rho, common = spearman_common(values)
    assert rho == pytest.approx(spearman_matrix(values), abs=1e-12)
    assert (common == 40).all()


@pytest.mark.slow
def test_many_models_do_not_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(2).normal(size=(20_000, 2))
    assert spearman_common(values)[0] == pytest.approx(spearman_matrix(values), abs=1e-12)


def test_infinity_is_refused() -> None:
    with pytest.raises(ValueError, match="infinity"):
        spearman_common(np.array([[np.inf]]))


def test_sums_of_ranks_of_the_most_models_for_16_bits_do_not_overflow() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 50, (_MAX_SHORT, 2)).astype(float)
    values[5, 0] = NAN
    rho, common = spearman_common(values)
    expected = stats.spearmanr(values[:, 0], values[:, 1], nan_policy="omit").statistic
    assert common[0, 1] == len(values) - 1
    assert rho[0, 1] == pytest.approx(expected, abs=1e-12)
