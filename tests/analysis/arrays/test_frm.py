import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from fleetrank.analysis.arrays.frm import (
    FrmWeights,
    frm,
    headroom,
    mid_p,
    null_p,
    null_units,
    ratios,
    residual_null_units,
)
from fleetrank.analysis.arrays.ranking import average_ranks, products, unit_columns

positive = hnp.arrays(
    np.float64, st.tuples(st.integers(1, 8), st.just(3)), elements=st.floats(1e-3, 1e6)
)


@pytest.mark.slow
@given(positive)
def test_ratio_is_over_scipys_geometric_mean(values: np.ndarray) -> None:
    np.testing.assert_allclose(ratios(values), values / stats.gmean(values, axis=0), rtol=1e-9)


@pytest.mark.slow
@given(positive)
def test_ranks_of_frm_are_those_of_the_plain_product(values: np.ndarray) -> None:
    flops, latency, memory = values.T
    compound = frm(flops, latency[:, None], memory[:, None])[:, 0]
    product = np.log(flops) + np.log(latency) + np.log(memory)
    for i, j in itertools.combinations(range(len(flops)), 2):
        if product[i] < product[j] - 1e-9:
            assert compound[i] < compound[j]


def test_frm_by_hand() -> None:
    # Geometric means: flops 2, latency 4, memory 8.
    flops = np.array([1.0, 4])
    latency, memory = np.array([[2.0], [8]]), np.array([[8.0], [8]])
    expected = [(0.5 * 0.5 * 1) ** (1 / 3), (2 * 2 * 1) ** (1 / 3)]
    np.testing.assert_allclose(frm(flops, latency, memory)[:, 0], expected)


def test_reference_model_has_frm_of_one() -> None:
    values = np.array([[3.0], [5], [7]])
    assert frm(values[:, 0], values, values, reference=1)[1, 0] == pytest.approx(1)


def test_zero_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="above 0"):
        frm(np.ones(2), np.ones((2, 1)), np.array([[0.0], [1]]))


def null_rhos(
    rest: np.ndarray, latency: np.ndarray, draws: int, rng: np.random.Generator
) -> np.ndarray:
    return np.concatenate([products(some) for some in null_units(rest, latency, draws, rng)])


def slow_null(rest: np.ndarray, latency: np.ndarray) -> list[float]:
    """Every pair of orders of 4 models on two platforms."""
    orders = [list(order) for order in itertools.permutations(range(len(latency)))]
    return [
        stats.spearmanr(rest[:, 0] * latency[first, 0], rest[:, 1] * latency[second, 1]).statistic
        for first in orders
        for second in orders
    ]


@pytest.mark.slow
def test_null_equals_all_independent_permutations_on_both_platforms() -> None:
    rest = np.array([[1.0, 1.1], [2, 2.3], [4, 4.2], [9, 8]])
    latency = np.array([[1.0, 5], [3, 2], [2, 3], [8, 1]])
    null = null_rhos(rest, latency, 4000, np.random.default_rng(0))
    expected = slow_null(rest, latency)
    assert null[:, 0, 1].mean() == pytest.approx(np.mean(expected), abs=0.02)
    assert set(np.round(null[:, 0, 1], 9)) <= set(np.round(expected, 9))


def test_null_of_latency_alone_is_zero_and_that_of_frm_far_above() -> None:
    rng = np.random.default_rng(5)
    flops = np.exp(rng.normal(size=13))
    latency = np.exp(rng.normal(size=(13, 2)))
    alone = null_rhos(np.ones((13, 2)), latency, 2000, rng)
    rest = np.column_stack([flops**2, flops**2])
    compound = null_rhos(rest, latency, 2000, rng)
    assert alone[:, 0, 1].mean() == pytest.approx(0, abs=0.03)
    assert compound[:, 0, 1].mean() > 0.5


def test_null_depends_on_its_seed_only() -> None:
    latency = np.exp(np.random.default_rng(5).normal(size=(6, 3)))
    draws = [null_rhos(latency, latency, 50, np.random.default_rng(seed)) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])


def test_headroom_and_its_limit() -> None:
    assert headroom(0.95, 0.9) == pytest.approx(0.5)
    assert headroom(0.8, 0.9) == pytest.approx(-1)
    assert headroom(1.0, 1.0) is None


def test_null_p_adds_one_and_counts_equal_draws() -> None:
    null = np.array([0.1, 0.5, 0.9, 0.9])
    assert null_p(0.9, null) == pytest.approx(3 / 5)
    assert null_p(1.0, null) == pytest.approx(1 / 5)


def test_mid_p_counts_equal_draws_half() -> None:
    null = np.array([0.1, 0.5, 0.9, 0.9])
    assert mid_p(0.9, null) == pytest.approx(1.5 / 5)
    assert mid_p(1.0, null) == pytest.approx(0.5 / 5)
    assert np.isnan(mid_p(np.array([np.nan]), null[:, None])[0])


def residual_rhos(
    rest: np.ndarray, latency: np.ndarray, flops: np.ndarray, draws: int, seed: int = 0
) -> np.ndarray:
    rng = np.random.default_rng(seed)
    units = residual_null_units(rest, latency, flops, draws, rng)
    return np.concatenate([products(some) for some in units])


def slow_residual_null(rest: np.ndarray, latency: np.ndarray, flops: np.ndarray) -> list[float]:
    """Every pair of orders of the residuals of NumPy's fits on two platforms."""
    n = len(flops)
    sides = []
    for column in latency.T:
        fit = np.polyval(np.polyfit(np.log(flops), np.log(column), 2), np.log(flops))
        residual = (np.log(column) - fit) * np.sqrt(n / (n - 3))
        sides.append([fit + residual[list(order)] for order in itertools.permutations(range(n))])
    return [
        stats.spearmanr(np.log(rest[:, 0]) + a, np.log(rest[:, 1]) + b).statistic
        for a, b in itertools.product(*sides)
    ]


@pytest.mark.slow
def test_residual_null_equals_all_independent_permutations_of_the_residuals() -> None:
    flops = np.array([1.0, 2.5, 4, 9])
    rest = np.array([[1.0, 1.1], [2, 2.3], [4, 3.2], [7, 8]])
    latency = np.array([[1.0, 5], [3, 2], [2, 3], [8, 1]])
    null = residual_rhos(rest, latency, flops, 6000)[:, 0, 1]
    expected = slow_residual_null(rest, latency, flops)
    assert null.mean() == pytest.approx(np.mean(expected), abs=0.02)
    assert set(np.round(null, 9)) == set(np.round(expected, 9))
    for value in set(np.round(expected, 9)):
        share = np.isclose(expected, value).mean()
        assert np.isclose(null, value).mean() == pytest.approx(share, abs=0.02)


def test_latency_that_flops_explain_completely_does_not_exceed_the_residual_null() -> None:
    flops = np.array([1.0, 1, 2, 3, 5, 8, 8])
    latency = np.column_stack([flops**0.8, 3 * flops])
    null = residual_rhos(np.ones_like(latency), latency, flops, 50)[:, 0, 1]
    np.testing.assert_allclose(null, 1)
    assert mid_p(1.0, null) == pytest.approx(0.5)


def test_equal_flops_leave_the_plain_permutation() -> None:
    latency = np.exp(np.random.default_rng(5).normal(size=(6, 2)))
    ones = np.ones_like(latency)
    plain = null_rhos(ones, latency, 200, np.random.default_rng(0))
    np.testing.assert_allclose(residual_rhos(ones, latency, np.full(6, 2.0), 200), plain)


def test_a_constant_cost_of_each_inference_does_not_exceed_the_residual_null() -> None:
    rng = np.random.default_rng(3)
    found = []
    for _ in range(40):
        flops = np.exp(rng.normal(0, 1.2, 30))
        latency = (1 + flops[:, None]) * np.exp(rng.normal(0, 0.1, (30, 8)))
        even, odd = np.arange(0, 8, 2), np.arange(1, 8, 2)
        rho = products(unit_columns(average_ranks(latency)))[even, odd]
        null = residual_rhos(np.ones_like(latency), latency, flops, 100, seed=4)
        found.append(mid_p(rho, null[:, even, odd]))
    assert np.mean(np.concatenate(found) <= 0.05) < 0.1


def test_two_sizes_of_flops_have_no_bend_to_fit() -> None:
    flops = np.array([1.0, 1, 1, 1, 8, 8, 8, 8])
    latency = np.exp(np.random.default_rng(1).normal(size=(8, 2))) * flops[:, None]
    null = residual_rhos(np.ones_like(latency), latency, flops, 50)[:, 0, 1]
    assert np.isfinite(null).all()
    assert np.ptp(null) > 0


@pytest.mark.slow
@given(positive, st.tuples(*[st.sampled_from([0.0, 1.0, 2.5])] * 2))
def test_weighted_frm_is_scipys_weighted_geometric_mean_of_the_ratios(
    values: np.ndarray, chosen: tuple[float, float]
) -> None:
    weights = FrmWeights(flops=chosen[0], latency=1.5, memory=chosen[1])
    flops, latency, memory = values.T
    found = frm(flops, latency[:, None], memory[:, None], weights=weights)[:, 0]
    slow = stats.gmean(ratios(values), axis=1, weights=[chosen[0], 1.5, chosen[1]])
    np.testing.assert_allclose(found, slow, rtol=1e-9)


def test_component_of_weight_zero_may_be_missing() -> None:
    missing = np.full((2, 1), np.nan)
    latency = np.array([[2.0], [8]])
    found = frm(np.array([1.0, 4]), latency, missing, weights=FrmWeights(memory=0))
    np.testing.assert_allclose(found[:, 0], [0.5, 2])


@pytest.mark.parametrize("given", [{"latency": 0.0}, {"memory": -1.0}])
def test_negative_weights_and_frm_without_latency_are_refused(given: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="latency's weight above 0"):
        FrmWeights(**given)
