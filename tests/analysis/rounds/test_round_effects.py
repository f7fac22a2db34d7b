"""Row and column effects: least squares, restricted likelihood, and what a simulation knows."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, stats

from fleetrank.analysis import round_effects
from fleetrank.analysis.round_effects import FREE, effects_of

DATA = Path(__file__).parents[2] / "data"
MODELS, CELLS = 13, 3
LEVELS = np.log(np.geomspace(1.0, 10.0, MODELS))


def rounds_of(
    random: np.random.Generator, repeats: int, *, host: float, noise: float, broken: float = 0.0
) -> np.ndarray:
    """Log latencies of models that are dealt to rounds of three, (n_models, n_rounds)."""
    groups = -(-MODELS // CELLS)
    table = np.full((MODELS, groups * repeats), np.nan)
    for column in range(table.shape[1]):
        if column % groups == 0:
            order = random.permutation(MODELS)
        mine = order[column % groups :: groups]
        rests = random.normal(0.0, noise, mine.size)
        rests += 0.4 * (random.random(mine.size) < broken)
        table[mine, column] = LEVELS[mine] + random.normal(0.0, host) + rests
    return table


def error_of(effects: np.ndarray) -> np.ndarray:
    """Distance from the true effects without a common part."""
    distance = effects - LEVELS
    return distance - distance.mean()


def least_squares(table: np.ndarray) -> np.ndarray:
    """Row effects with fixed columns, by a design matrix; their mean is 0."""
    at_row, at_column = np.nonzero(np.isfinite(table))
    design = np.zeros((at_row.size, sum(table.shape)))
    design[np.arange(at_row.size), at_row] = 1.0
    design[np.arange(at_row.size), table.shape[0] + at_column] = 1.0
    found = np.linalg.lstsq(design, table[at_row, at_column], rcond=None)[0][: table.shape[0]]
    return found - found.mean()


def restricted_likelihood(table: np.ndarray) -> tuple[np.ndarray, float]:
    """Generalised least squares and variance ratio, by the covariance of all values."""
    at_row, at_column = np.nonzero(np.isfinite(table))
    values, design = table[at_row, at_column], np.eye(table.shape[0])[at_row]
    same = (at_column[:, None] == at_column).astype(float)

    def fit(ratio: float) -> tuple[np.ndarray, float]:
        covariance = np.eye(values.size) + ratio * same
        weighted = np.linalg.solve(covariance, np.column_stack([design, values]))
        normal = design.T @ weighted[:, :-1]
        rows = np.linalg.solve(normal, design.T @ weighted[:, -1])
        squares = (values - design @ rows) @ np.linalg.solve(covariance, values - design @ rows)
        freedom = values.size - rows.size
        criterion = freedom * np.log(squares)
        return rows, criterion + sum(np.linalg.slogdet(one)[1] for one in (covariance, normal))

    best = optimize.minimize_scalar(lambda log: fit(np.exp(log))[1], bounds=(-6, 8)).x
    return fit(np.exp(best))[0], float(np.exp(best))


@pytest.fixture
def no_outliers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Huber's weights are all 1."""
    monkeypatch.setattr(round_effects, "_HUBER", np.inf)


@pytest.mark.usefixtures("no_outliers")
def test_free_columns_are_the_least_squares_of_an_unbalanced_table() -> None:
    random = np.random.default_rng(1)
    table = rounds_of(random, 4, host=0.3, noise=0.05)
    table[random.random(table.shape) < 0.1] = np.nan
    found = effects_of(table, FREE).rows
    assert found - found.mean() == pytest.approx(least_squares(table), abs=1e-4)


@pytest.mark.usefixtures("no_outliers")
@pytest.mark.parametrize("host", [0.02, 0.05, 0.3])
def test_random_columns_are_the_restricted_likelihood(host: float) -> None:
    table = rounds_of(np.random.default_rng(2), 8, host=host, noise=0.05)
    rows, ratio = restricted_likelihood(table)
    found = effects_of(table)
    assert found.rows == pytest.approx(rows, abs=2e-3)
    assert found.ratio == pytest.approx(ratio, rel=0.3)  # a step of the tried ratios is 1.5


@pytest.mark.usefixtures("no_outliers")
def test_the_spread_of_adjusted_values_gives_the_interval_of_differences() -> None:
    """Balanced rounds of all rows: the paired t test knows the interval."""
    table = np.random.default_rng(3).normal(0.0, 0.2, (2, 9))
    table[1] += 0.9 * (table[0] - table[1])
    found = effects_of(table, FREE)
    paired = stats.ttest_rel(table[1], table[0])
    assert found.rows[1] - found.rows[0] == pytest.approx((table[1] - table[0]).mean(), abs=1e-4)
    error = np.sqrt(found.adjusted.var(axis=1, ddof=1).sum() / 9)
    half = stats.t.ppf(0.975, 16) * error  # Welch's, of two independent samples of equal spread
    low, high = paired.confidence_interval(0.95)
    assert half == pytest.approx((high - low) / 2, rel=1e-3)


def test_a_host_that_does_not_vary_leaves_means_of_rows() -> None:
    table = rounds_of(np.random.default_rng(4), 30, host=0.0, noise=0.03)
    assert effects_of(table).rows == pytest.approx(np.nanmean(table, axis=1), abs=0.01)


@pytest.mark.thorough
def test_a_broken_process_counts_little() -> None:
    errors, squares = [], []
    for seed in range(40):
        table = rounds_of(np.random.default_rng(seed), 10, host=0.15, noise=0.03, broken=0.05)
        errors.append(error_of(effects_of(table).rows))
        squares.append(error_of(least_squares(table)))
    assert np.std(errors) < 0.6 * np.std(squares)


def test_a_row_that_was_always_alone_keeps_its_own_mean() -> None:
    random = np.random.default_rng(5)
    table = np.full((3, 12), np.nan)
    table[:2, :6] = random.normal(0.0, 0.2, 6) + random.normal(0.0, 0.01, (2, 6))
    table[2, 6:] = random.normal(1.0, 0.2, 6)
    found = effects_of(table)
    assert found.rows[2] == pytest.approx(table[2, 6:].mean(), abs=0.1)
    # Its rounds do not show what the host did, so its error is that of the host.
    assert np.nanstd(found.adjusted[2]) > 5 * np.nanstd(found.adjusted[0])


@pytest.mark.usefixtures("no_outliers")
def test_one_row_alone_is_its_own_values() -> None:
    table = np.array([[1.0, 1.1, 0.9, 1.0]])
    found = effects_of(table)
    assert found.ratio == 0
    assert found.adjusted == pytest.approx(table)


def test_values_without_noise_have_no_spread() -> None:
    table = np.add.outer([0.0, 1.0], [0.0, 0.5, 0.2])
    found = effects_of(table)
    assert found.rows[1] - found.rows[0] == pytest.approx(1.0)
    assert np.ptp(found.adjusted, axis=1) == pytest.approx(0.0, abs=1e-3)


@pytest.mark.slow
@pytest.mark.usefixtures("no_outliers")
@pytest.mark.parametrize("case", json.loads((DATA / "mixed_lm" / "reml.json").read_text()))
def test_another_implementation_finds_the_same(case: dict[str, list[list[float]]]) -> None:
    """`MixedLM` of statsmodels; the tried ratios are steps of a factor of 1.5."""
    at_row, at_column, values = zip(*case["values"], strict=True)
    table = np.full((max(at_row) + 1, max(at_column) + 1), np.nan)
    table[at_row, at_column] = values
    found = effects_of(table)
    assert found.rows == pytest.approx(case["rows"], abs=1e-3)
    assert 1 / 1.25 < found.ratio / case["ratio"] < 1.25
