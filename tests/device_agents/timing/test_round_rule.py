"""The rule of a round against SciPy and simulated rounds."""

import math
from itertools import islice

import numpy as np
import pytest
from scipy import stats

from fleetrank.device_agents.round_rule import difference_half_width, orders, student_t


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 8, 12, 40])
def test_students_quantile_is_within_a_percent_of_scipys(freedom: int) -> None:
    assert student_t(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=0.01)


def test_every_second_order_is_the_reverse_of_the_one_before() -> None:
    seen = list(islice(orders(5, seed=3), 6))
    assert all(sorted(order) == [0, 1, 2, 3, 4] for order in seen)
    assert [seen[1], seen[3], seen[5]] == [one[::-1] for one in (seen[0], seen[2], seen[4])]
    assert seen[0] != seen[2]
    assert seen == list(islice(orders(5, seed=3), 6))


def test_of_two_cells_it_is_the_half_width_of_a_paired_t_interval() -> None:
    random = np.random.default_rng(0)
    logs = random.normal(0.0, 0.02, (2, 7))
    paired = logs[0] - logs[1]
    wanted = stats.t.ppf(0.975, 6) * paired.std(ddof=1) / math.sqrt(7)
    assert difference_half_width(np.exp(logs).tolist()) == pytest.approx(wanted, rel=0.01)


def test_a_state_of_the_host_that_all_cells_meet_does_not_widen_it() -> None:
    random = np.random.default_rng(1)
    logs = random.normal(0.0, 0.01, (4, 6))
    weather = random.normal(0.0, 0.5, 6)
    still, stormy = (difference_half_width(np.exp(x).tolist()) for x in (logs, logs + weather))
    assert stormy == pytest.approx(still)


@pytest.mark.slow
def test_its_interval_covers_the_difference_in_19_of_20_rounds() -> None:
    random = np.random.default_rng(2)
    n, covered = 2_000, 0
    for _ in range(n):
        logs = random.normal(0.0, 0.03, (3, 5)) + random.normal(0.0, 0.2, 5)
        width = difference_half_width(np.exp(logs).tolist())
        assert width is not None
        covered += abs(logs[0].mean() - logs[1].mean()) <= width
    assert covered / n == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize("medians", [[], [[1.0, 2.0]], [[1.0], [2.0]]])
def test_one_cell_or_one_block_has_no_difference(medians: list[list[float]]) -> None:
    assert difference_half_width(medians) is None
