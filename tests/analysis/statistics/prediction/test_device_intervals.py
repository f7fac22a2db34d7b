"""Intervals: their weights by hand, and how often they hold on made-up fleets."""

import numpy as np
import pytest
from daily import daily

from fleetrank.analysis.statistics.device_fit import (
    MAX_SCORES,
    DeviceValues,
    Group,
    _thinned,
    interval_of,
    more_needed,
    predict_device,
)


def values(n_models, n_devices, k, rng, heavy=False):
    """A fleet with a consensus, offsets and errors; the last device is the target."""
    noise = (
        rng.standard_t(2.5, size=(n_models, n_devices))
        if heavy
        else rng.normal(size=(n_models, n_devices))
    )
    size = np.exp(0.5 * rng.normal(size=n_devices))
    logs = rng.normal(size=n_models)[:, None] + rng.normal(size=n_devices) + 0.1 * size * noise
    own = np.full(n_models, np.nan)
    measured = rng.permutation(n_models)[:k]
    own[measured] = logs[measured, -1]
    given = DeviceValues(others=logs[:, :-1], own=own, facts=np.zeros((n_models, 0)))
    return given, logs[:, -1]


def coverage(n_models, n_devices, k, heavy=False, runs=120):
    held = []
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        given, truth = values(n_models, n_devices, k, rng, heavy)
        found = predict_device(given, 0.9, rng)
        is_open = np.isnan(given.own)
        held.append(np.mean((found.low <= truth)[is_open] & (truth <= found.high)[is_open]))
    return float(np.mean(held))


def by_hand(centres, scores, weights, share):
    """The smallest end with the share of the weight at or below it, with a plain loop."""
    reached = 0.0
    for end, weight in sorted(zip(centres + scores, weights, strict=True)):
        reached += weight
        if reached >= share - 1e-9:
            return end
    return np.inf


def test_ends_are_weighted_quantiles():
    rng = np.random.default_rng(0)
    groups = [
        Group(
            centres=rng.normal(size=(3, 1)), widths=np.ones((3, 1)),
            scores=np.abs(rng.normal(size=n)), weight=1 / (3 * (n + extra)),
        )
        for n, extra in ((7, 0), (4, 0), (5, 1))
    ]  # fmt: skip
    low, high = interval_of(groups, 0.2, 1 / 18)
    scores = np.concatenate([one.scores for one in groups])
    weights = np.concatenate([np.full(one.scores.size, one.weight) for one in groups])
    for model in range(3):
        centres = np.concatenate([np.repeat(one.centres[model], one.scores.size) for one in groups])
        assert high[model] == by_hand(centres, scores, weights, 0.8)
        assert low[model] == -by_hand(-centres, scores, weights, 0.8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_devices", "k", "is_finite"),
    [(1, 8, False), (1, 9, True), (2, 8, False), (2, 9, True), (3, 3, True), (3, 2, False),
     (10, 0, True), (9, 0, False)],
)  # fmt: skip
def test_an_interval_is_finite_only_with_enough_models_or_devices(n_devices, k, is_finite):
    rng = np.random.default_rng(1)
    given, _ = values(20, n_devices, k, rng)
    found = predict_device(given, 0.9, rng)
    is_open = np.isnan(given.own)
    assert np.isfinite(found.high[is_open] - found.low[is_open]).all() == is_finite
    assert (more_needed(found, n_devices - 1, 0.9) is None) == is_finite
    assert np.isnan(found.high[~is_open]).all()


@pytest.mark.slow
def test_what_is_needed_is_what_makes_the_interval_finite():
    rng = np.random.default_rng(2)
    given, _ = values(30, 4, 1, rng)
    needed = more_needed(predict_device(given, 0.95, rng), 3, 0.95)
    assert needed == (3, 6)
    for n_devices, k in ((4, 1 + needed[0]), (4 + needed[1], 1)):
        given, _ = values(30, n_devices, k, rng)
        assert more_needed(predict_device(given, 0.95, rng), n_devices - 1, 0.95) is None


@pytest.mark.slow
@pytest.mark.parametrize("heavy", daily([False, True], True))
@pytest.mark.parametrize(
    ("n_devices", "k"), daily([(12, 0), (12, 5), (4, 5), (12, 10), (1, 12)], (4, 5), (1, 12))
)
def test_ninety_per_cent_is_ninety_per_cent(n_devices, k, heavy):
    assert 0.87 <= coverage(25, n_devices, k, heavy) <= 0.97


def test_thinned_errors_are_at_least_as_large_at_every_share():
    scores = np.random.default_rng(5).exponential(size=2 * MAX_SCORES + 37)
    kept = _thinned(scores)
    assert kept.size == MAX_SCORES
    assert kept.max() == scores.max()
    for share in (0.05, 0.5, 0.9, 0.99):
        assert (scores <= np.quantile(kept, share, method="inverted_cdf")).mean() >= share
    assert np.array_equal(_thinned(scores[:MAX_SCORES]), scores[:MAX_SCORES])


@pytest.mark.slow
def test_more_coverage_is_a_wider_interval():
    rng = np.random.default_rng(0)
    given, _ = values(25, 12, 5, rng, heavy=True)
    found = predict_device(given, 0.9, rng)
    is_open = np.isnan(given.own)
    wider = predict_device(given, 0.95, rng)
    assert (found.low < wider.high)[is_open].all()
    assert ((wider.high - wider.low) > (found.high - found.low))[is_open].all()


def test_a_measured_model_shows_what_the_others_predict_for_it():
    rng = np.random.default_rng(3)
    given, truth = values(20, 8, 6, rng)
    found = predict_device(given, 0.9, rng)
    model = int(np.flatnonzero(np.isfinite(given.own))[0])
    own = given.own.copy()
    own[model] += 5
    moved = predict_device(DeviceValues(others=given.others, own=own, facts=given.facts), 0.9, rng)
    if moved.stiffness == found.stiffness:
        assert moved.centre[model] == pytest.approx(found.centre[model])
    assert moved.centre[model] == pytest.approx(truth[model], abs=1.5)


def test_a_model_that_no_known_device_measured_is_not_predicted():
    rng = np.random.default_rng(4)
    given, _ = values(12, 5, 4, rng)
    given.others[7] = np.nan
    found = predict_device(given, 0.9, rng)
    assert np.isnan([found.centre[7], found.low[7], found.high[7]]).all()
