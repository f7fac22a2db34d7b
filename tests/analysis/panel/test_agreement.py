"""How far pairs of columns agree, and means over them: by SciPy, slow versions, planted data."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from wording import has

from fleetrank.analysis.arrays.bootstrap import resampled_units
from fleetrank.analysis.arrays.frm import null_units
from fleetrank.analysis.panel.agreement import (
    figures_of_mean,
    figures_of_pairs,
    mean_figures,
    pair_figures,
)
from fleetrank.analysis.panel.draws import (
    PairDraws,
    Purpose,
    blocks,
    draws_for,
    null_draws,
    sums_of,
)
from fleetrank.analysis.panel.panel import Measure


def latency_measure(values: np.ndarray) -> Measure:
    return Measure(name="latency", rest=np.ones_like(values), latency=values)


def random_values(n_models: int, n_platforms: int, seed: int = 0) -> np.ndarray:
    return np.exp(np.random.default_rng(seed).normal(size=(n_models, n_platforms)))


masks = hnp.arrays(np.bool_, st.tuples(st.integers(1, 6), st.integers(2, 5)))


@pytest.mark.slow
@given(masks)
def test_blocks_hold_every_pair_once_with_its_common_models(present: np.ndarray) -> None:
    pairs = list(itertools.permutations(range(present.shape[1]), 2))
    seen = {}
    for block in blocks(present, pairs):
        for where, source, target in zip(block.where, block.source, block.target, strict=True):
            pair = (block.columns[source], block.columns[target])
            assert pair == pairs[where]
            seen[pair] = block.models.tolist()
    assert seen == {
        (i, j): np.flatnonzero(present[:, i] & present[:, j]).tolist() for i, j in pairs
    }


def test_ranks_are_taken_inside_the_pair_over_common_models() -> None:
    values = random_values(12, 3)
    values[[0, 3], 0] = np.nan
    values[[5, 3], 1] = np.nan
    figures = pair_figures(latency_measure(values), [(0, 1), (0, 2)], seed=0)
    for figure, (i, j) in zip(figures, [(0, 1), (0, 2)], strict=True):
        common = np.isfinite(values[:, i]) & np.isfinite(values[:, j])
        assert figure.n_models == common.sum()
        rho = stats.spearmanr(values[common, i], values[common, j]).statistic
        assert figure.rho == pytest.approx(rho, abs=1e-12)
        tau = stats.kendalltau(values[common, i], values[common, j]).statistic
        assert figure.tau_b == pytest.approx(tau, abs=1e-12)


def test_interval_holds_rho_and_comes_from_nine_models_on() -> None:
    for n_models, has_interval in ((8, False), (9, True)):
        figure = pair_figures(latency_measure(random_values(n_models, 2)), [(0, 1)], seed=0)[0]
        assert figure.rho is not None
        if has_interval:
            assert figure.low is not None
            assert figure.high is not None
            assert figure.low <= figure.rho <= figure.high
        else:
            assert (figure.low, figure.high) == (None, None)
            assert has(figure.reason, "interval", "8", "9")


def test_four_common_models_give_a_reason_instead_of_figures() -> None:
    values = random_values(5, 2)
    values[2, 1] = np.nan
    figure = pair_figures(latency_measure(values), [(0, 1)], seed=0)[0]
    assert (figure.n_models, figure.rho, figure.nulls.p_value) == (4, None, None)
    assert has(figure.reason, "4", "models", "5")


def test_constant_platform_gives_a_reason_and_no_nan() -> None:
    values = random_values(10, 2)
    values[:, 1] = 3.0
    figure = pair_figures(latency_measure(values), [(0, 1)], seed=0)[0]
    assert figure.rho is None
    assert figure.nulls.null_mean is None
    assert has(figure.reason, "models", "equal")


def test_frm_is_tested_against_its_own_null() -> None:
    rng = np.random.default_rng(4)
    rest = np.repeat(np.exp(2 * rng.normal(size=(13, 1))), 2, axis=1)
    unrelated = Measure(name="frm", rest=rest, latency=random_values(13, 2, seed=9))
    figure = pair_figures(unrelated, [(0, 1)], seed=0)[0]
    assert figure.rho is not None
    assert figure.nulls.null_mean is not None
    assert figure.nulls.p_value is not None
    assert figure.rho > 0.6
    assert figure.nulls.null_mean > 0.6
    assert figure.nulls.p_value > 0.05
    expected = (figure.rho - figure.nulls.null_mean) / (1 - figure.nulls.null_mean)
    assert figure.nulls.headroom == pytest.approx(expected)


def test_models_of_equal_products_tie_though_their_logarithms_differ() -> None:
    rest, latency = np.array([[6.0], [10.0]]), np.array([[35.0], [21.0]])
    assert np.ptp(np.log(rest) + np.log(latency)) > 0
    first, second = Measure(name="frm", rest=rest, latency=latency).values[:, 0]
    assert first == second


def test_at_least_200_draws_stand_behind_every_null() -> None:
    few, many = [(0, 1)], list(itertools.combinations(range(60), 2))
    for pairs in (few, many):
        measure = latency_measure(random_values(9, 60))
        block = next(blocks(np.isfinite(measure.values), pairs))
        units = list(null_draws(measure, block, draws_for(pairs), seed=0))
        assert sum(some.shape[0] for some in units) == draws_for(pairs).null >= 200
    # A draw of thousands of models takes as long as one of a fleet.
    assert draws_for(few, 11_000) == draws_for(many)
    assert draws_for(few, 1000).null == 1000


def test_same_seed_same_figures_and_another_seed_others() -> None:
    measure = latency_measure(random_values(10, 3))
    first, again, other = (pair_figures(measure, [(0, 1)], seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_mean_inside_a_cluster_comes_first() -> None:
    values = random_values(10, 4)
    pairs, clusters = [(0, 1), (0, 2), (0, 3)], ["x", "x", "y"]
    rho = [stats.spearmanr(values[:, i], values[:, j]).statistic for i, j in pairs]
    found = mean_figures(latency_measure(values), pairs, clusters, seed=0)
    means = [(rho[0] + rho[1]) / 2, rho[2]]
    assert found.rho == pytest.approx(np.mean(means))
    assert found.averaged.std_over_pairs == pytest.approx(np.std(means, ddof=1))
    assert (found.averaged.n_pairs, found.averaged.n_clusters, found.n_models) == (3, 2, 10)


def test_mean_null_equals_averaging_the_pairs_nulls_draw_by_draw() -> None:
    values = random_values(9, 4)
    measure = latency_measure(values)
    pairs, clusters = [(0, 2), (0, 3), (1, 2), (1, 3)], ["x", "x", "y", "y"]
    block = next(blocks(np.isfinite(values), pairs))
    units = np.concatenate(list(null_draws(measure, block, draws_for(pairs), seed=0)))
    slow = np.mean([(units[:, :, i] * units[:, :, j]).sum(axis=1) for i, j in pairs], axis=0)
    found = mean_figures(measure, pairs, clusters, seed=0)
    assert found.nulls.null_mean == pytest.approx(slow.mean())
    assert found.nulls.null_p95 == pytest.approx(np.quantile(slow, 0.95))


def test_undefined_pairs_are_left_out_of_the_mean() -> None:
    values = random_values(10, 3)
    values[:, 2] = 1.0
    found = mean_figures(latency_measure(values), [(0, 1), (0, 2)], ["x", "y"], seed=0)
    assert found.averaged.n_pairs == 1
    assert found.rho == pytest.approx(stats.spearmanr(values[:, 0], values[:, 1]).statistic)
    assert found.low is not None


def test_no_agreement_is_zero_and_not_what_rounding_leaves() -> None:
    values = np.column_stack([np.arange(1.0, 6), [2, 5, 3, 1, 4]])
    assert stats.spearmanr(values[:, 0], values[:, 1]).statistic == pytest.approx(0, abs=1e-12)
    (pair,) = pair_figures(latency_measure(values), [(0, 1)], seed=0)
    mean = mean_figures(latency_measure(values), [(0, 1)], ["a"], seed=0)
    assert (pair.rho, mean.rho) == (0, 0)
    opposite = np.column_stack([values[:, 0], values[:, 0], -values[:, 0] + 6])
    mean = mean_figures(latency_measure(opposite), [(0, 1), (0, 2)], ["a", "b"], seed=0)
    assert mean.rho == 0


def test_no_defined_pair_gives_a_reason() -> None:
    values = np.ones((10, 2))
    found = mean_figures(latency_measure(values), [(0, 1)], ["x"], seed=0)
    assert found.rho is None
    assert has(found.reason, "pair", "platforms")


def test_joint_interval_serves_pairs_with_unlike_models() -> None:
    values = random_values(12, 3)
    values[0, 2] = np.nan
    found = mean_figures(latency_measure(values), [(0, 1), (0, 2)], ["x", "y"], seed=0)
    assert found.n_models == 11
    assert found.low is not None
    assert found.high is not None
    assert found.rho is not None
    assert found.low < found.rho < found.high


def test_a_pair_with_few_models_leaves_the_mean_of_those_with_an_interval() -> None:
    values = random_values(40, 4)
    values[5:, 3] = np.nan
    values[0, 2] = np.nan
    pairs = list(itertools.combinations(range(4), 2))
    found = mean_figures(latency_measure(values), pairs, list(range(6)), seed=0)
    alone = mean_figures(
        latency_measure(values[:, :3]), pairs[:2] + pairs[3:4], list(range(3)), seed=0
    )
    assert (found.n_models, found.averaged.most_models, found.averaged.n_pairs) == (39, 40, 3)
    assert found.models_text == "39 to 40 models"
    assert found.rho == pytest.approx(alone.rho)
    assert found.low == alone.low is not None
    assert has(found.reason, "left out", "3 pairs", "9 models")


def test_without_a_pair_of_nine_models_all_pairs_are_in_the_mean() -> None:
    values = random_values(8, 3)
    values[5:, 2] = np.nan
    found = mean_figures(latency_measure(values), [(0, 1), (0, 2)], ["a", "b"], seed=0)
    assert (found.n_models, found.averaged.most_models, found.averaged.n_pairs, found.low) == (
        5,
        8,
        2,
        None,
    )


def test_null_refuses_nan() -> None:
    values = random_values(6, 2)
    values[0, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        list(null_units(np.ones_like(values), values, 1, np.random.default_rng(0)))


def test_missing_models_make_the_null_of_a_mean_no_narrower() -> None:
    values = random_values(13, 6)
    pairs = list(itertools.combinations(range(6), 2))
    clusters = [str(pair) for pair in pairs]
    complete = mean_figures(latency_measure(values), pairs, clusters, seed=0)
    values[range(6), range(6)] = np.nan
    missing = mean_figures(latency_measure(values), pairs, clusters, seed=0)
    assert complete.nulls.null_p95 is not None
    assert missing.nulls.null_p95 is not None
    assert missing.nulls.null_p95 >= complete.nulls.null_p95
    assert missing.nulls.null_mean == pytest.approx(0, abs=0.05)


def test_a_resample_without_any_common_model_is_left_out() -> None:
    values = random_values(5, 2)
    counts = np.array([[0, 0, 0, 0, 0], [1, 1, 1, 1, 1]])
    units = np.concatenate(list(resampled_units(values, counts)))
    assert np.isnan(units[0]).all()
    assert np.isfinite(units[1]).all()


def with_flops(values: np.ndarray, flops: np.ndarray) -> Measure:
    return Measure(name="latency", rest=np.ones_like(values), latency=values, flops=flops)


def test_agreement_that_flops_explain_exceeds_only_the_plain_null() -> None:
    rng = np.random.default_rng(2)
    flops = np.exp(1.2 * rng.normal(size=20))
    latency = flops[:, None] * np.exp(0.3 * rng.normal(size=(20, 2)))
    pair = pair_figures(with_flops(latency, flops), [(0, 1)], seed=0)[0]
    mean = mean_figures(with_flops(latency, flops), [(0, 1)], ["a"], seed=0)
    for figure in (pair, mean):
        assert figure.nulls.p_value is not None
        assert figure.nulls.p_value < 0.01
        assert figure.nulls.residual_p is not None
        assert figure.nulls.residual_p > 0.05
        assert figure.nulls.residual_null_mean is not None
        assert figure.nulls.residual_null_mean > 0.8
    assert mean.nulls.residual_p == pytest.approx(pair.nulls.residual_p)


def test_agreement_beyond_flops_exceeds_the_residual_null() -> None:
    rng = np.random.default_rng(2)
    flops = np.exp(1.2 * rng.normal(size=20))
    own = np.exp(rng.normal(size=(20, 1)))
    latency = flops[:, None] * own * np.exp(0.2 * rng.normal(size=(20, 2)))
    figure = pair_figures(with_flops(latency, flops), [(0, 1)], seed=0)[0]
    assert figure.nulls.residual_p is not None
    assert figure.nulls.residual_p < 0.01


def test_a_model_without_flops_makes_the_residual_null_undefined_with_the_reason() -> None:
    values, flops = random_values(10, 3), np.arange(1.0, 11)
    flops[4] = np.nan
    values[4, 2] = np.nan
    both, other = pair_figures(with_flops(values, flops), [(0, 1), (0, 2)], seed=0)
    assert (both.n_models, both.nulls.residual_p, both.nulls.residual_null_mean) == (10, None, None)
    assert both.nulls.p_value is not None
    assert has(both.reason, "residual null", "1 of 10", "FLOPs")
    # The model is not in common with the third platform, so nothing is missing there.
    assert other.n_models == 9
    assert other.nulls.residual_p is not None
    assert other.reason is None
    mean = mean_figures(with_flops(values, flops), [(0, 1), (0, 2)], ["a", "b"], seed=0)
    assert (mean.nulls.residual_p, mean.nulls.residual_null_mean) == (None, None)
    assert has(mean.reason, "residual null", "FLOPs")


FLEET = list(itertools.combinations(range(6), 2))
STAR = [(0, other) for other in range(1, 30)]
"""So many platforms that the products of all of them would cost more than those of the pairs."""


def measure_of(n_platforms: int, n_models: int = 12) -> Measure:
    rng = np.random.default_rng(3)
    flops = np.exp(rng.normal(size=n_models))
    latency = flops[:, None] * np.exp(rng.normal(size=(n_models, n_platforms)))
    return Measure(
        name="frm", rest=np.exp(rng.normal(size=latency.shape)), latency=latency, flops=flops
    )


@pytest.mark.parametrize("pairs", [FLEET, STAR])
def test_rho_in_a_draw_is_the_product_of_its_unit_columns(pairs: list[tuple[int, int]]) -> None:
    drawn = PairDraws(measure_of(30), pairs, seed=0)
    (part,) = drawn.parts
    units = np.concatenate(list(null_draws(drawn.measure, part, drawn.draws, 0)))
    slow = [(units[:, :, i] * units[:, :, j]).sum(axis=1) for i, j in pairs]
    rhos = drawn.rhos(Purpose.NULL, 0)
    assert rhos is not None
    np.testing.assert_allclose(rhos, np.transpose(slow), atol=1e-12)


def test_a_draw_is_made_once_for_the_pairs_and_for_every_mean() -> None:
    drawn = PairDraws(measure_of(6), FLEET, seed=0)
    figures_of_pairs(drawn)
    before = {one: drawn.rhos(one, 0) for one in (Purpose.NULL, Purpose.RESIDUAL_NULL)}
    figures_of_mean(drawn, np.arange(4), ["x"] * 4)
    assert all(drawn.rhos(one, 0) is rhos for one, rhos in before.items())


def test_a_mean_of_one_pair_has_the_nulls_of_the_pair_whatever_else_is_drawn() -> None:
    measure = measure_of(6)
    drawn = PairDraws(measure, FLEET, seed=0)
    every = figures_of_pairs(drawn)
    assert every == pair_figures(measure, FLEET, seed=0)
    for at in (0, 7, 14):
        mean = figures_of_mean(drawn, np.array([at]), ["x"])
        pair = every[at]
        assert mean.nulls.null_mean == pytest.approx(pair.nulls.null_mean, abs=1e-12)
        assert mean.nulls.null_p95 == pytest.approx(pair.nulls.null_p95, abs=1e-12)
        assert mean.nulls.p_value == pytest.approx(pair.nulls.p_value)
        assert mean.nulls.residual_null_mean == pytest.approx(
            pair.nulls.residual_null_mean, abs=1e-12
        )
        assert mean.nulls.residual_p == pytest.approx(pair.nulls.residual_p)
        assert (mean.rho, mean.averaged.std_over_pairs) == (pytest.approx(pair.rho), None)


def test_a_mean_of_all_pairs_does_not_depend_on_who_made_the_draws() -> None:
    measure, clusters = measure_of(6), [str(at % 4) for at in range(len(FLEET))]
    shared = figures_of_mean(PairDraws(measure, FLEET, 0), np.arange(len(FLEET)), clusters)
    assert shared == mean_figures(measure, FLEET, clusters, seed=0)


def test_sums_without_kept_draws_are_the_same() -> None:
    drawn = PairDraws(measure_of(6), FLEET, seed=0)
    weights = np.random.default_rng(0).random(len(FLEET))
    weights[[2, 5]] = 0
    units = null_draws(drawn.measure, drawn.parts[0], drawn.draws, 0)
    kept = drawn.sums(Purpose.NULL, 0, weights)
    assert kept is not None
    np.testing.assert_allclose(kept, sums_of(units, drawn.parts[0], weights), atol=1e-12)


def test_draws_do_not_depend_on_how_many_are_made_at_a_time() -> None:
    rest, latency = measure_of(3).rest[:, :3], measure_of(3).latency
    few = np.concatenate(list(null_units(rest, latency, 20, np.random.default_rng(1))))
    rng = np.random.default_rng(1)
    singly = [next(iter(null_units(rest, latency, 1, rng))) for _ in range(20)]
    np.testing.assert_array_equal(few, np.concatenate(singly))
