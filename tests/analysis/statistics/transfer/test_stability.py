"""Spread of ranks and ratios inside a tier, against slow and obvious versions."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from wording import has

from fleetrank.analysis.arrays.frm import frm, ratios
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.statistics.transfer.stability import STATISTICS, mean_interval, spreads
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.tables import make_table

positive = hnp.arrays(
    np.float64, st.tuples(st.integers(1, 7), st.integers(2, 5)), elements=st.floats(1e-3, 1e3)
)
UP = [1.0 + n**2 for n in range(10)]
OTHER = [1.0 + n for n in (2, 0, 3, 1, 5, 4, 9, 8, 6, 7)]
THIRD = [3.0 * value for value in UP]
MEMORY = [100 + 7 * n for n in range(10)]


@pytest.mark.slow
@given(positive)
def test_spreads_are_standard_deviation_and_variation_model_by_model(values: np.ndarray) -> None:
    ranks = np.column_stack([stats.rankdata(column) for column in values.T])
    found = spreads(values)
    for model in range(values.shape[0]):
        for at, series in ((0, ranks[model]), (2, values[model])):
            assert found[model, at] == pytest.approx(np.std(series, ddof=1), abs=1e-9)
            assert found[model, at + 1] == pytest.approx(stats.variation(series, ddof=1), abs=1e-9)


def test_equal_series_have_no_spread_at_all() -> None:
    assert spreads(np.full((3, 4), 0.1)).tolist() == [[0.0] * 4] * 3


@pytest.mark.parametrize("values", [np.ones((3, 1)), np.full((3, 2), np.nan), np.zeros((3, 2))])
def test_one_platform_nan_and_zero_are_refused(values: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"2 platforms|NaN|above 0"):
        spreads(values)


def test_interval_of_the_mean_is_scipys_percentile_bootstrap() -> None:
    rng = np.random.default_rng(0)
    values = rng.exponential(size=(40, 2))
    found = mean_interval(values, rng)
    assert found is not None
    for column in range(2):
        slow = stats.bootstrap(
            (values[:, column],), np.mean, method="percentile", rng=np.random.default_rng(1)
        ).confidence_interval
        assert found[0][column] == pytest.approx(slow.low, rel=0.05)
        assert found[1][column] == pytest.approx(slow.high, rel=0.05)


def test_eight_models_have_no_interval() -> None:
    assert mean_interval(np.ones((8, 2)), np.random.default_rng(0)) is None


def shown(make_grid, **series: list[float]) -> Table:
    n_models = len(next(iter(series.values())))
    frame = make_grid(series, flops=range(1, n_models + 1), memory=MEMORY[:n_models])
    return make_table("trust/stability", frame, Selection())


def value(table: Table, statistic: str, measure: str) -> dict[str, object]:
    (row,) = [
        row
        for row in table.frame.to_dicts()
        if (row["statistic"], row["measure"]) == (statistic, measure)
    ]
    return row


@pytest.mark.slow
def test_figures_are_means_over_models_of_the_slow_version(make_grid) -> None:
    table = shown(make_grid, d1=UP, d2=OTHER, d3=THIRD)
    latency = np.column_stack([UP, OTHER, THIRD])
    memory = np.repeat(np.array(MEMORY, dtype=float)[:, None], 3, axis=1)
    flops = np.arange(1.0, 11)
    slow = {
        "latency": ratios(latency),
        "latency_cube_root": ratios(latency) ** (1 / 3),
        "frm": frm(flops, latency, memory),
    }
    for measure, values in slow.items():
        expected = spreads(values).mean(axis=0)
        for name, figure in zip(STATISTICS, expected, strict=True):
            row = value(table, name, measure)
            assert row["value"] == pytest.approx(figure)
            assert row["low"] <= figure <= row["high"]
            assert (row["n_models"], row["n_platforms"], row["n_device_models"]) == (10, 3, 3)
    rhos = [
        stats.spearmanr(latency[:, i], latency[:, j]).statistic
        for i, j in itertools.combinations(range(3), 2)
    ]
    assert value(table, "rho", "latency")["value"] == pytest.approx(np.mean(rhos))


@pytest.mark.slow
def test_frm_varies_as_the_cube_root_of_latency_where_memory_does_not_vary(make_grid) -> None:
    table = shown(make_grid, d1=UP, d2=OTHER)
    frm_cv = value(table, "ratio_cv", "frm")["value"]
    assert frm_cv == pytest.approx(value(table, "ratio_cv", "latency_cube_root")["value"])
    assert frm_cv < value(table, "ratio_cv", "latency")["value"] / 2


@pytest.mark.slow
def test_frms_rho_stands_with_its_null(make_grid) -> None:
    row = value(shown(make_grid, d1=UP, d2=OTHER), "rho", "frm")
    assert row["value"] is not None
    assert row["null_mean"] is not None
    assert row["null_p95"] is not None


@pytest.mark.slow
def test_only_models_on_all_platforms_enter_a_spread(make_grid) -> None:
    frame = make_grid({"d1": UP, "d2": OTHER[:7]})
    table = make_table("trust/stability", frame, Selection())
    row = value(table, "rank_std", "latency")
    assert (row["n_models"], row["low"]) == (7, None)
    assert has(row["reason"], "interval", "7", "9")
    missing = value(table, "rank_std", "frm_without_memory")
    assert missing["value"] is None
    assert has(missing["reason"], "0", "platforms", "5")


@pytest.mark.slow
def test_a_platform_with_few_models_leaves_the_spreads(make_grid) -> None:
    whole = shown(make_grid, d1=UP, d2=OTHER)
    table = make_table(
        "trust/stability", make_grid({"d1": UP, "d2": OTHER, "small": UP[:2]}), Selection()
    )
    row, alone = (value(one, "rank_std", "latency") for one in (table, whole))
    same = ("n_models", "n_platforms", "n_device_models", "value")
    assert [row[name] for name in same] == [alone[name] for name in same]
    assert has(row["reason"], "left out", "1 platform", "9 models")
    assert value(table, "rho", "latency")["n_platforms"] == 3


@pytest.mark.slow
def test_tiers_and_batches_are_kept_apart_and_one_platform_has_no_spread(make_grid) -> None:
    frame = make_grid(
        {"g1": UP, "g2": OTHER, "e1": UP, "b1": UP, "b2": OTHER},
        g1={"tier": "gpu"}, g2={"tier": "gpu"}, e1={"tier": "edge"},
        b1={"tier": "gpu", "batch": 8}, b2={"tier": "gpu", "batch": 8},
    )  # fmt: skip
    found = make_table("trust/stability", frame, Selection()).frame
    assert set(zip(found["tier"], found["batch"], strict=True)) == {("gpu", 1), ("gpu", 8)}
    assert set(found["n_platforms"]) == {2}


@pytest.mark.slow
def test_two_runtimes_of_one_device_have_spreads_but_no_rho(make_attempts) -> None:
    frame = make_attempts(
        {"model": f"m{i}", "runtime": runtime, "latency_p50_ns": series[i]}
        for runtime, series in (("onnx", UP), ("torch", OTHER))
        for i in range(10)
    )
    table = make_table("trust/stability", frame, Selection())
    assert value(table, "rank_std", "latency")["value"] is not None
    assert value(table, "rho", "latency")["reason"].startswith("one device only")


@pytest.mark.slow
def test_one_platform_is_no_tier_to_compare(make_grid) -> None:
    with pytest.raises(NoDataError, match="two platforms"):
        make_table("trust/stability", make_grid({"d1": UP}), Selection())
