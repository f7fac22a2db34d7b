"""Draws are made once for pairs and means, and are the ranks of each draw."""

import itertools

import numpy as np
import pytest

from fleetrank.analysis.arrays.frm import null_units
from fleetrank.analysis.panel.pair_draws import PairDraws, Purpose, sums_of
from fleetrank.analysis.panel.pair_figures import figures_of_pairs, pair_figures
from fleetrank.analysis.panel.pair_means import figures_of_mean, mean_figures
from fleetrank.analysis.panel.pairs import null_draws
from fleetrank.analysis.panel.panel import Measure

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
        assert mean.null_mean == pytest.approx(pair.null_mean, abs=1e-12)
        assert mean.null_p95 == pytest.approx(pair.null_p95, abs=1e-12)
        assert mean.p_value == pytest.approx(pair.p_value)
        assert mean.residual_null_mean == pytest.approx(pair.residual_null_mean, abs=1e-12)
        assert mean.residual_p == pytest.approx(pair.residual_p)


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
