"""Choosing and predicting on fleets made so that the answer is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.analysis.statistics.choices.next_models import beside, choose, covariance_of, judge


def fleet(seed: int, n_models: int = 8, n_devices: int = 6) -> np.ndarray:
    logs = np.random.default_rng(seed).normal(size=(n_models, n_devices))
    return logs - logs.mean(axis=0)


@given(st.integers(0, 1000))
def test_conditioning_step_by_step_is_conditioning_at_once(seed: int) -> None:
    known = covariance_of(fleet(seed))
    chosen, left = choose(known, 3)
    outer = known[:, chosen]
    conditional = known - outer @ np.linalg.inv(known[np.ix_(chosen, chosen)]) @ outer.T
    assert len(set(chosen.tolist())) == 3
    assert left[-1] == pytest.approx(np.trace(conditional), abs=1e-6)


@given(st.integers(0, 1000))
def test_each_choice_takes_most_from_the_variance(seed: int) -> None:
    known = covariance_of(fleet(seed))
    (first,), (left,) = choose(known, 1)
    each = [
        np.trace(known - np.outer(column, column) / column[number])
        for number, column in enumerate(known)
    ]
    assert left == pytest.approx(min(each), abs=1e-6)
    assert each[first] == pytest.approx(min(each), abs=1e-6)


def test_only_the_models_not_measured_have_an_error() -> None:
    logs = np.tile(np.arange(5.0)[:, None], 4)
    assert judge(beside(logs, 3), logs[:, 3], np.array([0, 2])) == pytest.approx((0, 1))
    logs[4, 3] += 1
    error, rho = judge(beside(logs, 3), logs[:, 3], np.array([0, 4]))
    assert 0 < error < 1
    assert rho == pytest.approx(1)
    assert judge(beside(logs, 3), logs[:, 3], np.arange(4))[0] == pytest.approx(
        1 - np.exp(-1), abs=0.05
    )


def test_active_choice_finds_the_models_that_differ_between_devices() -> None:
    rng = np.random.default_rng(0)
    logs = np.linspace(0, 3, 10)[:, None] + rng.normal(0, 0.01, (10, 12))
    logs[[2, 7]] += rng.normal(0, 1, (2, 12))
    chosen, _ = choose(covariance_of(logs - logs.mean(axis=0)), 3)
    assert {2, 7} < set(chosen.tolist())
