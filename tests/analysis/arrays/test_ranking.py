import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from fleetrank.analysis.arrays.ranking import (
    average_ranks,
    block_size,
    kendall_matrix,
    rank_units,
    spearman_matrix,
    unit_columns,
)

# Few distinct values make ties and constant columns likely.
matrices = hnp.arrays(
    np.float64,
    st.tuples(st.integers(2, 12), st.integers(1, 4)),
    elements=st.integers(-3, 3).map(float) | st.floats(-1e6, 1e6),
)


def slow_ranks(column: np.ndarray) -> list[float]:
    return [
        sum(other < value for other in column) + (sum(other == value for other in column) + 1) / 2
        for value in column
    ]


@pytest.mark.slow
@given(matrices)
def test_ranks_equal_counting_who_is_smaller(values: np.ndarray) -> None:
    expected = np.column_stack([slow_ranks(column) for column in values.T])
    np.testing.assert_array_equal(average_ranks(values), expected)


@pytest.mark.slow
@given(matrices)
def test_matrices_equal_scipy_pair_by_pair(values: np.ndarray) -> None:
    rho, tau = spearman_matrix(values), kendall_matrix(values)
    for i in range(values.shape[1]):
        for j in range(values.shape[1]):
            x, y = values[:, i], values[:, j]
            if np.ptp(x) == 0 or np.ptp(y) == 0:
                assert np.isnan(rho[i, j])
                assert np.isnan(tau[i, j])
            else:
                assert rho[i, j] == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)
                assert tau[i, j] == pytest.approx(stats.kendalltau(x, y).statistic, abs=1e-12)


@pytest.mark.slow
@given(matrices, st.randoms())
def test_order_of_models_does_not_matter(values: np.ndarray, random) -> None:
    order = list(range(values.shape[0]))
    random.shuffle(order)
    np.testing.assert_allclose(spearman_matrix(values[order]), spearman_matrix(values), atol=1e-12)


def test_constant_column_gives_nan_though_its_mean_is_not_exact() -> None:
    values = np.column_stack([np.arange(6.0), np.full(6, 0.1)])
    for function in (spearman_matrix, kendall_matrix):
        np.testing.assert_allclose(function(values), [[1, np.nan], [np.nan, np.nan]])


def test_nan_is_refused() -> None:
    values = np.array([[1.0, 2], [np.nan, 3], [4, 5]])
    for function in (average_ranks, spearman_matrix, kendall_matrix):
        with pytest.raises(ValueError, match="NaN"):
            function(values)


@pytest.mark.slow
@given(matrices)
def test_units_of_ranks_are_the_ranks_centred_and_of_length_1(values: np.ndarray) -> None:
    np.testing.assert_array_equal(rank_units(values), unit_columns(average_ranks(values)))


def test_tau_of_many_models_is_scipys_although_they_are_compared_in_blocks() -> None:
    values = np.random.default_rng(0).integers(0, 400, (700, 3)).astype(float)
    assert values.shape[0] > block_size(*values.shape)
    tau = kendall_matrix(values)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        expected = stats.kendalltau(values[:, i], values[:, j]).statistic
        assert tau[i, j] == pytest.approx(expected, abs=1e-12)
