import itertools

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from wording import has

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.statistics.frontiers.pair_regrets import (
    QUARTILES,
    Budgets,
    accuracy_lost,
    extra_latency,
    pair_regrets,
)
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import make_table

small = st.integers(1, 5).map(float)
models = hnp.arrays(np.float64, st.tuples(st.integers(1, 8), st.just(3)), elements=small)


def slow_lost(accuracy, source, target, budget) -> tuple[float, float]:
    """Walks the source from its fastest on, in sets of equal latency."""
    keeps = {m for m in range(accuracy.size) if target[m] <= budget}
    let_in: set[int] = set()
    for latency in sorted(set(source)):
        if len(let_in) < len(keeps):
            let_in |= {m for m in range(accuracy.size) if source[m] == latency}
    if not keeps:
        return np.nan, np.nan
    both = keeps & let_in
    first = max(accuracy[m] for m in let_in)
    found = max((accuracy[m] for m in both), default=np.nan)
    return max(accuracy[m] for m in keeps) - found, float(not found >= first)


def slow_extra(accuracy, source, target, floor) -> float:
    enough = [m for m in range(accuracy.size) if accuracy[m] >= floor]
    if not enough:
        return np.nan
    chosen = min(enough, key=lambda m: (source[m], -accuracy[m], m))
    return target[chosen] / min(target[m] for m in enough) - 1


@pytest.mark.slow
@given(models, st.integers(0, 6))
def test_regrets_equal_choosing_step_by_step(values: np.ndarray, budget: int) -> None:
    accuracy, source, target = values.T
    ranks = stats.rankdata(source, method="min").astype(float)
    lost, is_over = accuracy_lost(
        accuracy, ranks[:, None], target[:, None], np.array([float(budget)])
    )
    expected = slow_lost(accuracy, source, target, budget)
    np.testing.assert_array_equal([lost[0], is_over[0]], expected)
    extra = extra_latency(accuracy, source[:, None], target[:, None], budget)[0]
    np.testing.assert_allclose(extra, slow_extra(accuracy, source, target, budget))


HOLEY = hnp.arrays(np.float64, (7, 3), elements=st.one_of(small, st.just(np.nan)))
PAIRS = list(itertools.permutations(range(3), 2))


@pytest.mark.slow
@given(HOLEY, HOLEY.map(lambda values: values[:, 0]), st.booleans())
def test_each_pair_is_judged_on_its_common_models(
    latency: np.ndarray, accuracy: np.ndarray, by_flops: bool
) -> None:
    flops = np.arange(7.0)
    found = pair_regrets(accuracy, latency, PAIRS, Budgets(), flops if by_flops else None)
    for at, (i, j) in enumerate(PAIRS):
        common = np.isfinite(latency[:, i] + latency[:, j] + accuracy)
        if not common.any():
            assert np.isnan(found.extra[:, at]).all()
            continue
        source = flops[common] if by_flops else latency[common, i]
        values = accuracy[common], source, latency[common, j]
        for number, quantile in enumerate(QUARTILES):
            lost, is_over = slow_lost(*values, np.quantile(values[2], quantile))
            extra = slow_extra(*values, np.quantile(values[0], quantile))
            np.testing.assert_array_equal(found.lost[number, at], lost)
            np.testing.assert_array_equal(found.is_over[number, at], is_over)
            np.testing.assert_allclose(found.extra[number, at], extra)


@pytest.mark.slow
@given(models)
def test_choosing_on_the_target_itself_is_never_regretted(values: np.ndarray) -> None:
    accuracy, latency, _ = values.T
    found = pair_regrets(accuracy, latency[:, None], [(0, 0)], Budgets())
    assert (found.lost == 0).all()
    assert (found.extra == 0).all()


def test_nan_is_refused() -> None:
    hole, one = np.array([[np.nan]]), np.array([[1.0]])
    with pytest.raises(ValueError, match="NaN"):
        extra_latency(np.array([1.0]), one, hole, 0.0)
    with pytest.raises(ValueError, match="NaN"):
        accuracy_lost(np.array([1.0]), one, hole, np.array([1.0]))


def rows_of(frame: pl.LazyFrame, level: str, **settings: str) -> list[dict]:
    selection = Selection(source="d1", settings=tuple(settings.items()))
    table = make_table("frontier/regret", frame, selection)
    return [row for row in table.frame.to_dicts() if row["level"] == level]


@pytest.fixture
def swapped(make_grid) -> pl.LazyFrame:
    """m2 is slow on d1 but the fastest on d2."""
    return make_grid(
        {"d1": [1e6, 2e6, 4e6], "d2": [3e6, 4e6, 2e6]}, accuracy=[60, 70, 80], flops=[1, 2, 3]
    )


@pytest.mark.slow
def test_the_users_budgets_by_hand(swapped) -> None:
    settings = {"budgets_ms": "2, 3.5", "floors_percent": "65"}
    lost, extra = rows_of(swapped, "source", **settings)
    # 2 ms: only m2 keeps it, d1 lets in m0: undefined.
    # 3.5 ms: m2 is the best; d1 lets in m0 and m1, of which m0 keeps it.
    assert (lost["n_cases"], lost["n_undefined"]) == (1, 1)
    assert lost["worst"] == 20
    assert lost["over_budget_share"] == 1
    # At 65 % d1 chooses m1 (4 ms on d2), m2 takes 2 ms.
    assert extra["worst"] == pytest.approx(100)


@pytest.mark.slow
def test_the_settings_are_stated(swapped) -> None:
    selection = Selection(settings=(("budgets_ms", "2,3.5"),))
    notes = make_table("frontier/regret", swapped, selection).explanation
    assert has(notes, "Latency", "2", "3.5")
    assert has(notes, "25", "50", "75", "models")


@pytest.mark.parametrize("text", ["fast", "0", "-1", "1,,2", "nan"])
def test_budgets_that_are_no_numbers_are_refused(swapped, text: str) -> None:
    with pytest.raises(AnalysisError, match="must be numbers above 0"):
        rows_of(swapped, "source", budgets_ms=text)


@pytest.mark.slow
def test_a_budget_nobody_keeps_is_undefined_with_its_reason(swapped) -> None:
    lost, _ = rows_of(swapped, "source", budgets_ms="0.001")
    assert (lost["median"], lost["n_cases"]) == (None, 0)
    assert "within the budget" in lost["reason"]


@pytest.mark.slow
def test_a_source_is_summed_up_over_its_targets(make_grid) -> None:
    frame = make_grid({"d1": [1, 2], "d2": [1, 2], "d3": [2, 1]}, accuracy=[70, 70], flops=[1, 2])
    _, extra = rows_of(frame, "source")
    # Three floors on two targets: no excess on d2, twice the latency on d3.
    assert (extra["n_cases"], extra["n_pairs"], extra["worst"]) == (6, 2, 100)
    assert extra["median"] == 50
