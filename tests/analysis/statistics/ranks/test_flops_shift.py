import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.analysis.arrays.ranking import average_ranks
from fleetrank.analysis.statistics.ranks.disagreement import Chance, chance_of_shift, rank_shifts


def test_shift_is_positive_where_flops_flatter() -> None:
    flops, latency = np.array([1.0, 2, 3]), np.array([9.0, 1, 2])
    assert rank_shifts(flops, latency).tolist() == [2, -1, -1]


def test_ties_share_their_rank() -> None:
    assert rank_shifts(np.array([1.0, 1, 2]), np.array([1.0, 2, 2])).tolist() == [-0.5, 1, -0.5]


def test_chance_equals_counting_every_order() -> None:
    n = 6
    orders = [np.array(order) for order in itertools.permutations(range(n))]
    cases = np.array([np.abs(order - np.arange(n)) >= 2 for order in orders])
    chance = chance_of_shift(np.arange(n), np.arange(n))
    assert chance.share == pytest.approx(cases.mean(), abs=1e-12)
    assert chance.any_share == pytest.approx(cases.any(axis=1).mean(), abs=1e-12)
    # Closed forms: 1 - (3n - 2) / n^2, and 1 - Fibonacci(n + 1) / n!.
    assert cases.mean() == pytest.approx(1 - 16 / 36)
    assert cases.any(axis=1).mean() == pytest.approx(1 - 13 / 720)


@given(
    flops=st.lists(st.integers(0, 3), min_size=5, max_size=6),
    metric=st.lists(st.integers(0, 5), min_size=6, max_size=6),
)
def test_chance_of_any_shift_equals_counting_every_order_of_tied_ranks(
    flops: list[int], metric: list[int]
) -> None:
    by_flops, by_metric = (ranks(values[: len(flops)]) for values in (flops, metric))
    orders = itertools.permutations(by_metric)
    cases = [any(abs(a - b) >= 2 for a, b in zip(one, by_flops, strict=True)) for one in orders]
    chance = chance_of_shift(by_flops, by_metric)
    assert chance.any_share == pytest.approx(np.mean(cases), abs=1e-12)


def ranks(values: list[int]) -> np.ndarray:
    return average_ranks(np.array(values, dtype=float)[:, None])[:, 0]


def test_a_case_among_many_models_is_certain_by_chance() -> None:
    many = np.arange(1000.0)
    assert chance_of_shift(many, many).any_share == 1
    # Equal figures give everybody the same rank.
    assert chance_of_shift(np.ones(1000), np.ones(1000)) == Chance(share=0, any_share=0)
