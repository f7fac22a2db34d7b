"""The prediction of one device: against a slow one, planted laws, and how often intervals hold."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from daily import daily

from fleetrank.analysis.statistics.prediction import device_intervals
from fleetrank.analysis.statistics.prediction.device_fit import (
    DeviceValues,
    fact_columns,
    fit,
    known_of,
)
from fleetrank.analysis.statistics.prediction.device_intervals import more_needed, predict_device

M = 14


def facts_of(flops, parameters, families):
    frame = {"flops": flops, "parameters": parameters, "family": families}
    types = {"flops": pl.Float64, "parameters": pl.Float64, "family": pl.String}
    return fact_columns(pl.DataFrame(frame, schema_overrides=types))


def hidden(logs, k, rng=None):
    """Only `k` models of the last device are measured: drawn ones, or the first."""
    if logs.shape[1] == 1:
        logs = np.column_stack([np.zeros(len(logs)), logs])
    n_models, n = logs.shape
    order = np.arange(n_models) if rng is None else rng.permutation(n_models)
    given = logs.copy()
    given[order[k:], -1] = np.nan
    return DeviceValues(
        logs=given, target=n - 1, facts=np.zeros((n_models, 0)), devices=np.arange(n),
        is_alike=np.ones(n, dtype=np.bool_),
    )  # fmt: skip


def fleet(n_models, n_devices, rng, heavy=False, noise=0.1):
    shape = (n_models, n_devices)
    errors = rng.standard_t(2.5, size=shape) if heavy else rng.normal(size=shape)
    size = np.exp(0.5 * rng.normal(size=n_devices))
    return rng.normal(size=n_models)[:, None] + rng.normal(size=n_devices) + noise * size * errors


def fitted(values):
    own = values.own
    return fit(known_of(values, values.target), own, np.flatnonzero(np.isfinite(own))).centre


@pytest.fixture
def panel():
    return fleet(M, 6, np.random.default_rng(3), noise=0.2)


def slow(values):
    """Weighted mean and conditional mean of a Gaussian, value by value; no gap among the others."""
    known = known_of(values, values.target)
    measured = [at for at in range(len(values.own)) if np.isfinite(values.own[at])]
    says = 1 / known.spread[measured]
    weights, moved = [], []
    for column in known.logs.T:
        shifts = values.own[measured] - column[measured]
        weights.append(1 / (np.std(shifts, ddof=1) + 0.01) ** 2)
        moved.append(column + (shifts @ says) / says.sum())
    weights, moved = np.array(weights) / sum(weights), np.array(moved).T
    mean = moved @ weights
    off = moved - mean[:, None]
    missed = values.own[measured] - mean[measured]
    between = np.mean((off**2 @ weights) / known.spread)
    variance = (between + (missed**2 @ says) / (len(measured) - 1)) / 2 + 0.01**2
    slope = (mean - mean.mean()) / mean.std()
    kernel = off @ np.diag(weights) @ off.T + variance * 0.2 * np.outer(slope, slope) + 0.25
    kernel += variance * known.facts @ known.facts.T
    inner = kernel[np.ix_(measured, measured)]
    inner = inner + np.diag(0.3 * variance * known.spread[measured])
    return mean + kernel[:, measured] @ np.linalg.solve(inner, missed)


def test_the_fit_is_the_mean_of_the_gaussian_prior(panel):
    facts = facts_of(*np.exp(np.random.default_rng(4).normal(size=(2, M))), ["a", "b"] * 7)
    given = replace(hidden(panel, 5), facts=0.2 * facts)
    assert fitted(given) == pytest.approx(slow(given))


def test_without_a_measurement_the_consensus_at_the_mean_level_is_predicted(panel):
    assert fitted(hidden(panel, 0)) == pytest.approx(panel[:, :-1].mean(axis=1), abs=0.05)


def test_a_device_that_follows_another_one_is_predicted_from_it(panel):
    panel[:, -1] = panel[:, 2] + 0.7 + 0.001 * np.random.default_rng(5).normal(size=M)
    assert np.abs(fitted(hidden(panel, 4)) - panel[:, -1]).max() < 0.05


def test_a_noisy_device_has_less_say():
    rng = np.random.default_rng(6)
    logs = rng.normal(size=M)[:, None] + 0.01 * rng.normal(size=(M, 6))
    logs[:, 0] += 2 * rng.normal(size=M)
    assert np.std(fitted(hidden(logs, 4)) - logs[:, -1]) < 0.1
    assert np.std(logs[:, :5].mean(axis=1) - logs[:, -1]) > 0.3


def test_a_model_that_varies_between_devices_hardly_moves_the_others():
    rng = np.random.default_rng(8)
    logs = rng.normal(size=M)[:, None] + rng.normal(size=6) + 0.01 * rng.normal(size=(M, 6))
    logs[0] += 1.5 * rng.normal(size=6)
    assert np.abs(fitted(hidden(logs, 3)) - logs[:, -1])[3:].max() < 0.1


def test_the_device_itself_in_another_configuration_serves(panel):
    panel[:, 0] = panel[:, -1] + 2 + 0.001 * np.random.default_rng(5).normal(size=M)
    given = hidden(panel, 4)
    itself = replace(given, is_alike=np.arange(6) > 0, devices=np.array([5, *range(1, 6)]))
    assert np.abs(fitted(itself) - panel[:, -1]).max() < 0.05
    # Of another device the other configuration says nothing: too much differs at once.
    other = replace(itself, devices=np.arange(6))
    assert np.array_equal(fitted(other), fitted(hidden(panel[:, 1:], 4)))


def test_flops_alone_predict_where_no_device_is_known():
    flops = np.exp(np.random.default_rng(7).normal(size=M))
    alone = np.log(flops)[:, None] * 0.8 + 3
    facts = 30**0.5 * facts_of(flops, [None] * M, [None] * M)
    found = fitted(replace(hidden(alone, 6), facts=facts))
    assert found == pytest.approx(alone[:, 0], abs=0.02)


def test_a_missing_value_is_left_out_and_not_read_as_zero(panel):
    for k in (0, 4):
        with_gap = panel.copy()
        with_gap[3, 0] = with_gap[:4, 1] = np.nan
        gap = fitted(hidden(with_gap, k))
        assert np.abs(gap - fitted(hidden(panel, k))).max() < 0.3


def test_unknown_and_constant_facts_become_no_column():
    none = [None] * M
    assert facts_of(none, none, none).shape == (M, 0)
    assert facts_of(np.full(M, 5e9), none, ["cnn"] * M).shape == (M, 0)
    zero = np.where(np.arange(M) == 0, 0.0, np.e ** np.arange(M))
    column = facts_of(zero, none, none)
    assert np.isfinite(column).all()
    assert column[0] == 0


def test_equal_values_everywhere_give_finite_predictions():
    logs = np.ones((M, 4))
    logs[:, -1] = 2
    assert fitted(hidden(logs, 2)) == pytest.approx(np.full(M, 2.0), abs=0.05)


# Intervals.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_devices", "k", "is_finite"),
    [(1, 8, False), (1, 9, True), (2, 8, False), (2, 9, True), (3, 3, True), (3, 2, False),
     (10, 0, True), (9, 0, False)],
)  # fmt: skip
def test_an_interval_is_finite_only_with_enough_models_or_devices(n_devices, k, is_finite):
    rng = np.random.default_rng(1)
    given = hidden(fleet(20, n_devices, rng), k, rng)
    found = predict_device(given, 0.9, rng)
    is_open = np.isnan(given.own)
    assert np.isfinite(found.high[is_open] - found.low[is_open]).all() == is_finite
    assert (more_needed(found, n_devices - 1, 0.9) is None) == is_finite
    assert np.isnan(found.high[~is_open]).all()


@pytest.mark.slow
def test_what_is_needed_is_what_makes_the_interval_finite():
    rng = np.random.default_rng(2)
    needed = more_needed(predict_device(hidden(fleet(30, 4, rng), 1), 0.95, rng), 3, 0.95)
    assert needed == (3, 6)
    for n_devices, k in ((4, 1 + needed[0]), (4 + needed[1], 1)):
        found = predict_device(hidden(fleet(30, n_devices, rng), k), 0.95, rng)
        assert more_needed(found, n_devices - 1, 0.95) is None


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("heavy", daily([False, True], True))
@pytest.mark.parametrize(
    ("n_devices", "k"), daily([(12, 0), (12, 5), (4, 5), (12, 10), (1, 12)], (1, 12))
)
def test_ninety_per_cent_is_ninety_per_cent(n_devices, k, heavy):
    """The interval ends at a known share of the calibration; few devices cannot divide it finer.

    The value to predict has a weight of its own, so its share is at most that weight too large:
    with 12 devices and no measured model, 0.91 of the calibration holds between 0.91 and 0.99.
    """
    held = []
    for seed in range(120):
        rng = np.random.default_rng(seed)
        logs = fleet(25, n_devices, rng, heavy)
        given = hidden(logs, k, rng)
        found, is_open = predict_device(given, 0.9, rng), np.isnan(given.own)
        held.append(((found.low <= logs[:, -1]) & (logs[:, -1] <= found.high))[is_open].mean())
    weight = 1 / (found.n_groups * (found.k + 1))
    share = min(1 - 0.75 * 0.1, (0.9 + 1 - weight) / 2)
    chance = 3 * np.std(held) / np.sqrt(len(held))
    assert 0.9 - chance <= np.mean(held) <= share + weight + chance


@pytest.mark.slow
def test_more_coverage_is_a_wider_interval():
    rng = np.random.default_rng(0)
    given = hidden(fleet(25, 12, rng, heavy=True), 5)
    found, wider = (predict_device(given, share, rng) for share in (0.9, 0.95))
    assert ((wider.high - wider.low) > (found.high - found.low))[5:].all()


@pytest.mark.slow
def test_a_device_unlike_the_others_is_recognised_and_has_wider_intervals():
    rng = np.random.default_rng(9)
    logs = fleet(25, 12, rng)
    like = predict_device(hidden(logs, 5), 0.9, rng)
    logs[:, -1] += rng.normal(size=25)
    unlike = predict_device(hidden(logs, 5), 0.9, rng)
    assert like.unlike is None
    assert unlike.unlike is not None
    assert unlike.unlike > device_intervals.UNLIKE
    assert ((unlike.high - unlike.low) > 2 * (like.high - like.low))[5:].all()


def test_a_measured_model_shows_what_the_others_predict_for_it(panel):
    found = predict_device(hidden(panel, 6), 0.9, np.random.default_rng(0))
    panel[2, -1] += 5
    moved = predict_device(hidden(panel, 6), 0.9, np.random.default_rng(0))
    assert moved.centre[2] == pytest.approx(found.centre[2])


def test_a_model_that_no_source_measured_is_not_predicted(panel):
    panel[7, :-1] = np.nan
    found = predict_device(hidden(panel, 4), 0.9, np.random.default_rng(4))
    assert np.isnan([found.centre[7], found.low[7], found.high[7]]).all()
