"""Sets of ranks, against a published example and by drawing many data sets."""

import csv
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fleetrank.analysis.statistics.ranks.model_ranks import rank_sets, share_interval

PISA = Path(__file__).parents[3] / "data/rank_sets/pisa2018_math.csv"


@pytest.mark.slow
def test_the_published_example_has_the_published_sets() -> None:
    with PISA.open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    scores, errors, rank, low, high = (
        np.array([float(row[name]) for row in rows])
        for name in ("score", "error", "rank", "low", "high")
    )
    found = rank_sets(-scores, errors, np.full(scores.size, np.inf), np.random.default_rng(0))
    assert found.rank.tolist() == rank.tolist()
    # Critical values are drawn, there as here: a pair at the limit moves an end by one.
    assert np.abs(found.low - low).max() <= 1
    assert np.abs(found.high - high).max() <= 1
    assert (found.low == low).mean() > 0.9
    assert (found.high == high).mean() > 0.9


def drawn(truth: np.ndarray, spread: float, repeats: int, rng: np.random.Generator):
    data = truth[:, None] + spread * rng.standard_normal((truth.size, repeats))
    errors = data.std(axis=1, ddof=1) / np.sqrt(repeats)
    return rank_sets(data.mean(axis=1), errors, np.full(truth.size, repeats - 1.0), rng)


def test_models_far_apart_have_one_rank_each_and_equal_ones_have_all() -> None:
    rng = np.random.default_rng(1)
    apart = drawn(np.arange(6.0), 0.01, 5, rng)
    assert apart.low.tolist() == apart.high.tolist() == [1, 2, 3, 4, 5, 6]
    alike = drawn(np.zeros(6), 0.01, 5, np.random.default_rng(4))
    assert (alike.low.tolist(), alike.high.tolist()) == ([1] * 6, [6] * 6)


def test_few_repeats_give_wider_sets_than_a_known_error() -> None:
    means, errors = 0.03 * np.arange(8), np.full(8, 0.01)
    wide, narrow = (
        rank_sets(means, errors, np.full(8, degrees), np.random.default_rng(0))
        for degrees in (2.0, np.inf)
    )
    assert (wide.high - wide.low).sum() > (narrow.high - narrow.low).sum()


def test_steps_down_add_pairs_that_one_step_does_not_find() -> None:
    """Many clear differences; what is left is judged against fewer pairs."""
    means = np.concatenate([np.arange(0.0, 100.0, 10.0), [95.0, 95.0 + 4.45]])
    errors = np.ones(12)
    found = rank_sets(means, errors, np.full(12, np.inf), np.random.default_rng(0))
    # Of 12 equal models the largest difference exceeds 3.27 errors in 5 of 100 cases (the
    # studentised range, 4.62 / sqrt(2)). The last pair differs by 4.45 / sqrt(2) = 3.15 errors:
    # enough once the clear differences are left out.
    assert stats.studentized_range.ppf(0.95, 12, np.inf) / np.sqrt(2) > 4.45 / np.sqrt(2)
    assert found.high[10] == 11
    assert found.low[11] == 12


@pytest.mark.parametrize("repeats", [3, 5, 50])
@pytest.mark.parametrize("gap", [0.0, 0.01, 0.1])
def test_sets_are_those_of_all_pairs_in_every_draw(gap: float, repeats: int) -> None:
    rng, n, degrees = np.random.default_rng(repeats), 13, repeats - 1.0
    means, errors = gap * np.arange(n) + rng.normal(0, 0.03, n), rng.uniform(0.01, 0.05, n)
    found = rank_sets(means, errors, np.full(n, degrees), np.random.default_rng(0))
    rng = np.random.default_rng(0)
    z = rng.standard_normal((2000, n)) * errors
    variances = errors**2 * (rng.chisquare(np.full(n, degrees), z.shape) / degrees)
    drawn = z[:, :, None] - z[:, None]
    drawn /= np.sqrt(variances[:, :, None] + variances[:, None])
    observed = (means[:, None] - means) / np.sqrt(errors[:, None] ** 2 + errors**2)
    is_open, more = ~np.eye(n, dtype=bool), True
    while more:
        is_found = is_open & (observed > np.quantile(drawn[:, is_open].max(axis=1), 0.95))
        is_open &= ~is_found
        more = is_found.any() and is_open.any()
    is_above = ~is_open & ~np.eye(n, dtype=bool)
    assert found.low.tolist() == (1 + is_above.sum(axis=1)).tolist()
    assert found.high.tolist() == (n - is_above.sum(axis=0)).tolist()


@pytest.mark.parametrize(("hits", "n"), [(0, 4), (4, 4), (2, 4), (17, 40)])
def test_the_interval_of_a_share_is_scipys_exact_one(hits: int, n: int) -> None:
    expected = stats.binomtest(hits, n).proportion_ci(method="exact")
    assert share_interval(hits, n) == pytest.approx((expected.low, expected.high))
