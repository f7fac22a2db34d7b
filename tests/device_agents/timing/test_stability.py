import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.device_agents.contract.task import MeasurePolicy
from fleetrank.device_agents.timing import (
    HalfWidthRule,
    check_points,
    halves_agree,
    median_half_width,
    time_runs,
)


def test_the_interval_of_a_hundred_numbers_by_the_table() -> None:
    # Le Boudec's table for n = 100 and 95 %: the 40th and the 61st value.
    samples = list(range(1, 101))
    assert median_half_width(samples) == pytest.approx((61 - 40) / 2 / 50.5)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_too_few_samples_have_no_interval(n: int) -> None:
    assert median_half_width([7] * n) is None


def test_a_median_of_zero_has_no_relative_width() -> None:
    assert median_half_width([0] * 50) is None


@given(st.lists(st.integers(1, 10**12), min_size=6))
def test_the_width_does_not_depend_on_order_or_unit(samples: list[int]) -> None:
    width = median_half_width(samples)
    assert width is not None
    assert width >= 0
    assert median_half_width(sorted(samples, reverse=True)) == width
    assert median_half_width([1000 * sample for sample in samples]) == pytest.approx(width)


def test_the_interval_holds_the_median_in_95_of_100_cases() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(1_000):
        samples = sorted(rng.integers(0, 10**6, 60).tolist())
        width = median_half_width([sample + 10**6 for sample in samples])
        assert width is not None
        # The interval's own ends, from the formula of the source.
        low, high = samples[22 - 1], samples[39 - 1]
        hits += low <= 500_000 <= high
        assert width == pytest.approx((high - low) / 2 / (np.median(samples) + 10**6))
    assert hits >= 940


@given(st.integers(-5, 20_000), st.integers(1, 20_000))
def test_check_points_rise_geometrically_to_the_end(min_runs: int, max_samples: int) -> None:
    points = list(check_points(min_runs, max_samples))
    assert points[0] == min(max(min_runs, 1), max_samples)
    assert points[-1] == max_samples
    assert points == sorted(set(points))
    assert len(points) < 30


@pytest.mark.parametrize(
    ("times", "agree"),
    [
        ([], False),
        ([5], False),
        ([100, 101], True),
        ([100, 103], False),
        ([100, 999, 101], True),  # the middle one belongs to neither half
        ([103, 103, 100, 100], False),
    ],
)
def test_halves_agree_within_two_per_cent(times: list[int], agree: bool) -> None:
    assert halves_agree(np.cumsum(times).tolist(), 0.02) is agree


def test_the_rule_is_satisfied_by_steady_samples_only() -> None:
    rule = HalfWidthRule(policy=MeasurePolicy())
    assert rule.is_enough([10**7] * 100)
    assert not rule.is_enough(list(range(10**7, 2 * 10**7, 10**5)))
    assert not rule.is_enough([])
    assert next(rule.check_points()) == 100


def test_a_model_of_8_us_is_watched_for_a_fifth_of_a_second() -> None:
    now_ns = 0

    def run() -> None:
        nonlocal now_ns
        now_ns += 8_000

    rule = HalfWidthRule(policy=MeasurePolicy())
    timed = time_runs(run, lambda: now_ns, rule, max_time_s=20.0)
    assert timed.stop_reason == "half_width"
    assert 2e8 <= sum(timed.samples_ns) < 3.1e8
