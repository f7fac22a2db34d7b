import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from wording import has

from fleetrank.analysis.panel.conditions import Level, pair_group
from fleetrank.analysis.statistics.prediction.reference_r2 import (
    group_r2,
    median_draws,
    pair_r2,
    reference_r2,
)
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import make_table

elements = st.integers(1, 9).map(float)
series = hnp.arrays(np.float64, st.tuples(st.integers(2, 9), st.just(2)), elements=elements)


def slow_r2(source: np.ndarray, target: np.ndarray, reference: int, counts: np.ndarray) -> float:
    """By latencies, with every scored model spelled out as often as it was drawn."""
    if counts[reference] == 0:
        return np.nan
    scored = [m for m in range(source.size) if m != reference for _ in range(counts[m])]
    if not scored or np.ptp(target[scored]) == 0:
        return np.nan
    predicted = np.log(source[scored] * target[reference] / source[reference])
    measured = np.log(target[scored])
    missed = ((measured - predicted) ** 2).sum()
    return 1 - missed / ((measured - measured.mean()) ** 2).sum()


@pytest.mark.slow
@given(series, st.data())
def test_r2_equals_scoring_model_by_model(latencies: np.ndarray, data) -> None:
    n = latencies.shape[0]
    drawn = st.lists(st.integers(0, 3), min_size=n, max_size=n).filter(any)
    counts = np.array(data.draw(st.one_of(st.just([1] * n), drawn)))
    source, target = latencies.T
    found = reference_r2(np.log(source)[:, None], np.log(target)[:, None], counts)[:, 0]
    expected = [slow_r2(source, target, reference, counts) for reference in range(n)]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_no_counts_means_every_model_once() -> None:
    source, target = np.log(np.random.default_rng(0).uniform(1, 9, (2, 7, 3)))
    np.testing.assert_allclose(
        reference_r2(source, target), reference_r2(source, target, np.ones(7, dtype=np.int64))
    )


def test_the_reference_matters_although_correlation_cannot_see_it() -> None:
    # Twice as slow but for the last, five times: Pearson is the same whichever is the reference.
    source = np.log([1.0, 2, 4, 8, 16])[:, None]
    target = source + np.log([2, 2, 2, 2, 5])[:, None]
    r2 = reference_r2(source, target)[:, 0]
    assert r2[4] < 0 < r2[0] < 1
    assert r2[:4] == pytest.approx(r2[0], abs=0.5)


def test_equal_scored_models_are_undefined() -> None:
    source = np.log([1.0, 2, 3, 4, 5])[:, None]
    target = np.log([0.1, 0.1, 0.1, 0.1, 7])[:, None]
    assert np.isnan(reference_r2(source, target)[:, 0]).tolist() == [False] * 4 + [True]


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        reference_r2(np.zeros((5, 1)), np.full((5, 1), np.nan))


HOLEY = st.one_of(elements, st.just(np.nan))
PAIRS = [(0, 1), (1, 0), (0, 2), (2, 1)]


@pytest.mark.slow
@settings(deadline=None)
@given(hnp.arrays(np.float64, (7, 3), elements=HOLEY))
def test_a_group_averages_clusters_first(latencies: np.ndarray) -> None:
    logs = np.log(latencies)
    group = pair_group(Level.TIER, ("cpu", "cpu"), PAIRS, ["a", "b", "a", "c"], is_directed=True)
    found = group_r2(logs, group)
    r2, n_common = pair_r2(logs, PAIRS)
    for at, (i, j) in enumerate(PAIRS):
        common = np.isfinite(logs[:, [i, j]]).all(axis=1)
        assert n_common[at] == common.sum()
        once = np.ones(common.sum(), dtype=int)
        numbers = np.flatnonzero(common)
        for place, model in enumerate(numbers if common.sum() >= 5 else []):
            expected = slow_r2(latencies[common, i], latencies[common, j], place, once)
            np.testing.assert_allclose(r2[model, at], expected, rtol=1e-9, atol=1e-9)
    for model in range(7):
        clusters = [r2[model, [0, 2]], r2[model, [1]], r2[model, [3]]]
        means = [part[np.isfinite(part)].mean() for part in clusters if np.isfinite(part).any()]
        assert found.n_clusters[model] == len(means)
        np.testing.assert_allclose(found.r2[model], np.mean(means) if means else np.nan)


def test_draws_surround_the_median_and_do_not_depend_on_other_pairs() -> None:
    rng = np.random.default_rng(1)
    logs = rng.normal(0, 1, (30, 1)) + rng.normal(0, 0.3, (30, 3))
    draws = median_draws(logs, PAIRS, 200, np.random.default_rng(2))
    alone = median_draws(logs, PAIRS[2:3], 200, np.random.default_rng(2))
    np.testing.assert_allclose(draws[:, 2:3], alone)
    low, high = np.quantile(draws[:, 0], [0.025, 0.975])
    assert low < np.median(pair_r2(logs, PAIRS)[0][:, 0]) < high


def table_rows(frame, **selection: str) -> list[dict[str, object]]:
    return make_table("predict/ratios", frame, Selection(**selection)).frame.to_dicts()  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_table_by_hand(make_grid) -> None:
    frame = make_grid({"d1": [1, 2, 4, 8, 16], "d2": [2, 4, 8, 16, 80]})
    rows = table_rows(frame, source="d1")
    pair = {row["reference"]: row for row in rows if row["level"] == "pair"}
    tier = {row["reference"]: row for row in rows if row["level"] == "tier"}
    # Reference m0: only m4 is missed, by log(80 / 32); scored are m1 to m4.
    measured = np.log([4, 8, 16, 80])
    expected = 1 - np.log(2.5) ** 2 / ((measured - measured.mean()) ** 2).sum()
    assert pair["m0"]["r2"] == pytest.approx(expected)
    references = [pair[f"m{n}"]["r2"] for n in range(5)]
    assert pair["median over references"]["r2"] == pytest.approx(np.median(references))
    assert has(pair["median over references"]["reason"], "interval", "5", "9")
    assert tier["m0"]["r2"] == pytest.approx(expected)
    assert (tier["m0"]["n_pairs"], tier["m0"]["share_above_half"]) == (1, 1)


@pytest.mark.slow
def test_pairs_without_the_reference_are_not_counted_and_few_models_leave_the_tier(
    make_grid,
) -> None:
    up = [float(n) for n in range(1, 13)]
    frame = make_grid({"d1": up, "d2": up[::-1], "d3": up, "d4": up[:5]})
    rows = table_rows(frame.filter((pl.col("device") != "d3") | (pl.col("model") != "m0")))
    tier = {row["reference"]: row for row in rows if row["level"] == "tier"}
    median = tier["median over references"]
    assert (tier["m0"]["n_pairs"], tier["m1"]["n_pairs"], median["n_pairs"]) == (2, 6, 6)
    assert (median["n_models"], median["most_models"]) == (11, 12)
    assert median["low"] is not None
    assert has(median["reason"], "left out", "6 pairs", "9 models")


@pytest.mark.slow
def test_too_few_models_are_undefined_with_their_reason(make_grid) -> None:
    rows = table_rows(make_grid({"d1": [1, 2], "d2": [2, 3]}))
    assert rows
    assert all(row["r2"] is None and row["reason"] for row in rows)
