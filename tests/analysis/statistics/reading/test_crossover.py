"""From which length on is a repetition faster: held against brute force and known answers."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.analysis.statistics.reading.crossover import (
    Repetition,
    changes_of_order,
    crossing_by_operations,
    crossings,
    end_points,
    time_at,
)

LENGTHS = np.array([256.0, 512.0, 1024.0, 2048.0])


def segments(size: int) -> Repetition:
    return Repetition(first=size, step=size)


@given(st.integers(1, 300), st.integers(1, 60), st.integers(1, 60))
def test_windows_are_counted_as_they_are_when_slid_over_the_text(
    tokens: int, first: int, step: int
) -> None:
    step = min(first, step)
    end, n = first, 1
    while end < tokens:
        end, n = end + step, n + 1
    assert Repetition(first=first, step=step).inferences(tokens) == n
    assert segments(first).inferences(tokens) == math.ceil(tokens / first)


def test_a_time_between_two_lengths_is_exact_for_a_quadratic() -> None:
    times = (3 * LENGTHS + 0.01 * LENGTHS**2)[None]
    for tokens in (256.0, 300.0, 700.0, 1999.0, 2048.0):
        found = time_at(LENGTHS, times, np.array([tokens]))
        assert found[0] == pytest.approx(3 * tokens + 0.01 * tokens**2)


@pytest.mark.slow
@pytest.mark.parametrize("repetition", [segments(128), Repetition(first=128, step=64)])
@pytest.mark.parametrize("seed", range(20))
def test_the_crossing_is_the_one_that_every_token_tried_gives(
    repetition: Repetition, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    times = LENGTHS * (1 + rng.uniform(0.0002, 0.002) * LENGTHS)
    one = np.array([rng.uniform(100, 400)])
    (found,) = crossings(LENGTHS, times[None], one, repetition)
    tried = np.arange(256.0, 2049.0)
    at_once = np.interp(tried, LENGTHS, times / LENGTHS) * tried
    slower = one * (1 + (tried - repetition.first) / repetition.step) >= at_once
    if not slower.any():
        assert found == -np.inf
    elif slower[-1]:
        assert found == np.inf
    else:
        assert found == pytest.approx(tried[slower][-1], abs=1)


def test_the_last_of_several_crossings_counts_and_they_are_counted() -> None:
    times = np.array([[300.0, 450.0, 1100.0, 1900.0]])
    one = np.array([128.0])  # 1 a token: faster at 256, slower at 512, faster, slower
    assert crossings(LENGTHS, times, one, segments(128))[0] == np.inf
    assert changes_of_order(LENGTHS, times[0], 128.0, segments(128)) == 3


def test_each_draw_has_its_own_crossing() -> None:
    times = np.array([LENGTHS, LENGTHS * (0.5 + LENGTHS / 2000), 3 * LENGTHS])
    found = crossings(LENGTHS, times, np.full(3, 1.01 * 128), segments(128))
    assert found.tolist() == [np.inf, pytest.approx(1020), -np.inf]


def test_an_interval_may_have_an_end_that_is_infinite() -> None:
    draws = np.array([*np.arange(900.0), *([np.inf] * 100)])
    assert end_points(draws) == (24.0, np.inf)
    some = np.random.default_rng(1).normal(size=1001)
    assert end_points(some) == pytest.approx(tuple(np.quantile(some, [0.025, 0.975])))


OPT_350M = {"weights": 302e6, "attention": 2 * 24 * 1024}
"""Multiplied weights without the head, and products for each pair of tokens: 2 x layers x width."""


def test_operations_give_the_published_rule_of_the_crossover() -> None:
    """W / (4 L H h) + 1.5 (S + k + 2): a quarter of a pass more for each half of a segment."""
    weights, attention = OPT_350M.values()
    lengths = np.array([128, 512, 2048])
    operations = lengths * (weights + attention * lengths)
    one = 1024 * 1.5 * (weights + attention * (1024 + 32 + 2))
    found = crossing_by_operations(lengths, operations, one, segments(1024))
    assert found == pytest.approx(weights / (2 * attention) + 1.5 * (1024 + 32 + 2))
    assert found == pytest.approx(4660, rel=0.001)


@pytest.mark.parametrize("repetition", [segments(128), Repetition(first=256, step=128)])
def test_the_crossing_by_operations_is_the_one_that_every_length_tried_gives(
    repetition: Repetition,
) -> None:
    weights, attention, head = 85e6, 2 * 12 * 768, 38e6

    def at_once(tokens: float) -> float:
        return head + tokens * (weights + attention * tokens)

    lengths = np.array([64, 256, 512, 1024])
    operations = np.array([round(at_once(float(one))) for one in lengths], dtype=float)
    passes = 1.6 if repetition.first == 128 else 1.0
    one = passes * at_once(repetition.first)
    found = crossing_by_operations(lengths, operations, one, repetition)
    tried = np.arange(repetition.first + 1.0, 20_000)
    slower = tried[one * (1 + (tried - repetition.first) / repetition.step) >= at_once(tried)]
    assert found == pytest.approx(slower[-1], abs=1.5)


def test_a_repetition_that_is_always_cheaper_counts_from_its_first_length() -> None:
    lengths = np.array([64, 256, 512])
    found = crossing_by_operations(lengths, lengths * (10.0 + lengths), 128.0, segments(128))
    assert found == 128


@pytest.mark.parametrize(
    ("lengths", "operations"),
    [([64, 128], [64.0, 128.0]), ([64, 128, 256], [64.0, 128.0, 256.0]),
     ([64, 128, 256, 512], [1.0, 2.0, 9.0, 10.0])],
)  # fmt: skip
def test_operations_without_a_known_square_give_no_crossing(
    lengths: list[int], operations: list[float]
) -> None:
    found = crossing_by_operations(np.array(lengths), np.array(operations), 1e9, segments(64))
    assert found is None
