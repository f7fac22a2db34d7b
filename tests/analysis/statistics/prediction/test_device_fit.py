"""The fit of one device, held against brute force and planted laws."""

import numpy as np
import pytest
from scipy import stats

from fleetrank.analysis.statistics.device_fit import STIFFNESS, basis_of, fact_columns, fit

M = 14


@pytest.fixture
def panel():
    rng = np.random.default_rng(3)
    model, device = rng.normal(size=M), rng.normal(size=5)
    return model[:, None] + device + 0.2 * rng.normal(size=(M, 5))


def facts(rng=None):
    rng = rng or np.random.default_rng(4)
    families = ["cnn" if at % 2 else "transformer" for at in range(M)]
    return fact_columns(np.exp(rng.normal(size=M)), np.exp(rng.normal(size=M)), families)


@pytest.mark.slow
@pytest.mark.parametrize("stiffness", STIFFNESS)
def test_left_out_errors_and_gains_are_those_of_fits_made_again(panel, stiffness):
    basis, own = basis_of(panel[:, :4], facts()), panel[:, 4]
    measured = np.array([0, 2, 5, 6, 9, 12])
    whole = fit(basis, measured, own[measured], stiffness)
    for at, model in enumerate(measured):
        rest = np.delete(measured, at)
        again = fit(basis, rest, own[rest], stiffness)
        assert own[model] - again.predicted[model] == pytest.approx(whole.left_out[at])
        moved = whole.predicted - whole.gain(at) * whole.left_out[at]
        assert moved == pytest.approx(again.predicted)
        more = (basis.spread * whole.gain(at)) ** 2 / whole.left[at]
        assert np.sqrt(whole.width**2 + more) == pytest.approx(again.width)
        assert whole.left_width[at] == pytest.approx(again.width[model])


def test_the_fit_is_the_mean_of_the_gaussian_prior(panel):
    """Against the kernel form: covariance of all models given the measured ones."""
    basis, own = basis_of(panel[:, :4], facts()), panel[:, 4]
    measured = np.array([1, 3, 8])
    kernel = basis.offset**2 + 2.0 * basis.features @ basis.features.T
    inner = kernel[np.ix_(measured, measured)] + np.eye(3)
    surprise = own[measured] - basis.prior[measured]
    expected = basis.prior + kernel[:, measured] @ np.linalg.solve(inner, surprise)
    assert fit(basis, measured, own[measured], 2.0).predicted == pytest.approx(expected)


def test_without_a_measurement_the_consensus_at_the_mean_offset_is_predicted(panel):
    basis = basis_of(panel, facts())
    nothing = np.array([], dtype=np.int64)
    found = fit(basis, nothing, np.array([]), 2.0)
    assert found.predicted == pytest.approx(basis.prior)
    # Weights of the consensus give a device that deviates less more say, so it is no plain mean.
    assert stats.pearsonr(found.predicted, panel.mean(axis=1)).statistic > 0.99


def test_a_device_that_follows_another_one_is_predicted_from_it(panel):
    rng = np.random.default_rng(5)
    own = panel[:, 2] * 1.0 + 0.7 + 0.001 * rng.normal(size=M)
    basis, measured = basis_of(panel, facts()), np.arange(9)
    errors = [
        np.abs(fit(basis, measured, own[:9], one).predicted - own)[9:].mean() for one in STIFFNESS
    ]
    assert errors[-1] < 0.25 * errors[0]


def test_a_noisy_device_has_less_say_in_the_consensus():
    rng = np.random.default_rng(6)
    truth = rng.normal(size=M)
    logs = truth[:, None] + 0.01 * rng.normal(size=(M, 5))
    logs[:, 0] += 2 * rng.normal(size=M)
    off = basis_of(logs, np.zeros((M, 0))).prior - truth
    assert np.std(off) < 0.1
    assert np.std(logs.mean(axis=1) - truth) > 0.3


def test_flops_alone_predict_where_no_device_is_known():
    flops = np.exp(np.random.default_rng(7).normal(size=M))
    own = np.log(flops) * 0.8 + 3
    basis = basis_of(np.zeros((M, 0)), fact_columns(flops, np.full(M, np.nan), [None] * M))
    measured = np.arange(6)
    found = fit(basis, measured, own[:6], 32.0)
    assert found.predicted == pytest.approx(own, abs=0.02)


def test_a_missing_value_is_left_out_and_not_read_as_zero(panel):
    with_gap = panel.copy()
    with_gap[3, 0] = np.nan
    whole, gap = basis_of(panel, facts()), basis_of(with_gap, facts())
    assert gap.is_known.all()
    assert np.abs(gap.prior - whole.prior).max() < 0.3


def test_unknown_and_constant_facts_become_no_column():
    none = np.full(M, np.nan)
    assert fact_columns(none, none, [None] * M).shape == (M, 0)
    assert fact_columns(np.full(M, 5e9), none, ["cnn"] * M).shape == (M, 0)
    zero = np.where(np.arange(M) == 0, 0.0, np.e ** np.arange(M))
    column = fact_columns(zero, none, [None] * M)
    assert np.isfinite(column).all()
    assert column[0] == 0


def test_equal_values_everywhere_give_finite_predictions():
    basis = basis_of(np.ones((M, 3)), facts())
    found = fit(basis, np.array([0, 1]), np.array([2.0, 2.0]), 8.0)
    assert found.predicted == pytest.approx(np.full(M, 2.0), abs=0.05)
