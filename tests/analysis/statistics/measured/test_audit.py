import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from wording import has

from fleetrank.analysis.statistics.audit.audit import (
    duplicate_pairs,
    fit_residuals,
    median_platform,
    median_platforms,
    outliers,
    tied_share,
)
from fleetrank.analysis.statistics.audit.unit_slips import sentinels, unit_slips
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import make_table

pytestmark = pytest.mark.slow

MODELS = 12
LADDER = np.log(np.geomspace(1.0, 50.0, MODELS))
FLEET = np.column_stack(
    [LADDER * slope + level for slope, level in ((1.0, 0.0), (0.9, 1.0), (1.1, 2.0), (0.95, 0.5))]
)
ONE_GROUP = np.zeros(FLEET.shape[1], dtype=np.int64)

grids = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 9), st.integers(1, 5)),
    elements=st.one_of(st.just(np.nan), st.floats(-1, 1), st.sampled_from([0.0, 0.03, 0.06])),
)


def _is_copy(a: np.ndarray, b: np.ndarray) -> bool:
    """The rule in words, on the common models of two platforms."""
    if len(a) < 5 or len(set(a)) == 1 or len(set(b)) == 1:
        return False
    ratios = np.exp(b - a)
    middle = np.median(ratios)
    away = sorted(abs(ratio / middle - 1) for ratio in ratios)
    bad = max(int(0.05 * len(a)), 1 if len(a) >= 9 else 0)
    most = away[len(a) - 1 - bad]
    noisy = (len(a) >= 9 and 1.4826 * np.median(away) <= 0.05 and most <= 0.15
             and abs(middle - 1) <= 0.05)  # fmt: skip
    kept = np.abs(ratios / middle - 1) <= max(most, 0.05)
    return (most <= 0.05 or noisy) and stats.spearmanr(a[kept], b[kept]).statistic >= 0.95


@given(grids)
def test_duplicates_are_those_of_the_obvious_loop(logs: np.ndarray) -> None:
    expected = []
    for i in range(logs.shape[1]):
        for j in range(i + 1, logs.shape[1]):
            known = ~np.isnan(logs[:, i] + logs[:, j])
            if _is_copy(logs[known, i], logs[known, j]):
                expected.append((i, j, int(known.sum())))
    assert [(one.first, one.second, one.n_models) for one in duplicate_pairs(logs)] == expected


def test_a_platform_five_per_cent_off_everywhere_is_proportional() -> None:
    noise = np.log(1 + np.linspace(-0.04, 0.04, MODELS))
    logs = np.column_stack([LADDER, LADDER + np.log(3) + noise, LADDER * 2])
    (pair,) = duplicate_pairs(logs)
    assert (pair.first, pair.second, pair.n_models) == (0, 1, MODELS)
    assert pair.ratio == pytest.approx(3, rel=0.01)
    assert pair.deviation == pytest.approx(0.04, rel=0.1)
    assert pair.rho == pytest.approx(1)


@pytest.mark.parametrize("seed", range(5))
def test_neither_a_bad_row_nor_noise_hides_a_mirror(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mirror = LADDER + np.log1p(rng.normal(0, 0.03, MODELS))
    mirror[seed] += np.log(5)
    logs = np.column_stack([LADDER, mirror, LADDER + rng.normal(0, 0.3, MODELS)])
    assert [(pair.first, pair.second) for pair in duplicate_pairs(logs)] == [(0, 1)]


@given(grids)
def test_residuals_exist_where_the_values_do_and_no_order_matters(logs: np.ndarray) -> None:
    groups = np.zeros(logs.shape[1], dtype=np.int64)
    reference = median_platform(logs, groups)
    residuals, scale = fit_residuals(logs[:, 0], reference)
    known = np.isfinite(logs[:, 0]) & np.isfinite(reference)
    assert (scale is not None) == (known.sum() >= 5)
    assert np.array_equal(np.isfinite(residuals), known if scale is not None else known & False)
    turned, again = fit_residuals(logs[::-1, 0], median_platform(logs[::-1], groups))
    np.testing.assert_allclose(turned[::-1], residuals, atol=1e-9)
    assert again == pytest.approx(scale)


@pytest.mark.parametrize("n_slow", [1, 2, 4])
def test_up_to_a_third_of_slow_values_are_found_and_nothing_else(n_slow: int) -> None:
    slow = [0, 3, 6, 9][:n_slow]
    values = FLEET[:, 0] + np.random.default_rng(1).normal(0, 0.05, MODELS)
    values[slow] += np.log(5)
    logs = np.column_stack([values, FLEET[:, 1:]])
    residuals, scale = fit_residuals(values, median_platform(logs, ONE_GROUP))
    assert scale is not None
    assert np.flatnonzero(outliers(residuals, scale)).tolist() == slow
    assert not unit_slips(residuals).any()


@pytest.mark.parametrize(("factor", "power"), [(1e3, 3), (1e-3, -3), (1e6, 6), (1e-6, -6)])
def test_another_unit_is_told_from_a_slow_state(factor: float, power: int) -> None:
    values = FLEET[:, 0].copy()
    values[4] += np.log(factor)
    logs = np.column_stack([values, FLEET[:, 1:]])
    residuals, _ = fit_residuals(values, median_platform(logs, ONE_GROUP))
    assert unit_slips(residuals).tolist() == [power if i == 4 else 0 for i in range(MODELS)]


def test_the_median_platform_needs_three_platforms_and_each_group_counts_once() -> None:
    logs = FLEET.copy()
    logs[0, 1:3] = np.nan
    assert np.isnan(median_platform(logs, ONE_GROUP)).tolist() == [True] + [False] * (MODELS - 1)
    phones = np.tile(LADDER[::-1, None], (1, 20))
    both = np.column_stack([FLEET, phones])
    groups = np.array([0] * 4 + [1] * 20)
    together = median_platform(both, groups)
    assert np.ptp(together) < np.ptp(median_platform(both, np.zeros(24, dtype=np.int64)))


@pytest.mark.parametrize("slow", [[8, 9, 10, 11], [0, 1, 2, 3], [2, 5, 6, 10]])
def test_a_third_of_slow_models_at_one_end_does_not_tilt_the_line(slow: list[int]) -> None:
    rng = np.random.default_rng(4)
    logs = LADDER[:, None] + rng.normal(0, 0.1, (MODELS, 6))
    logs[slow, 0] += np.log(5)
    reference = median_platforms(logs, ["cpu"] * 6, ["onnx"] * 6)[0][0]
    residuals, scale = fit_residuals(logs[:, 0], reference)
    assert scale is not None
    assert np.flatnonzero(outliers(residuals, scale)).tolist() == slow


def test_a_steep_platform_keeps_its_own_slope() -> None:
    rng = np.random.default_rng(5)
    values = 1.6 * LADDER + rng.normal(0, 0.02, MODELS)
    residuals, scale = fit_residuals(values, LADDER)
    assert scale is not None
    assert scale < 0.04
    assert np.abs(residuals).max() < 0.1


def test_the_free_slope_is_scipys_also_with_equal_values() -> None:
    steps = LADDER.round()
    values = 1.6 * steps + np.random.default_rng(5).normal(0, 0.02, MODELS)
    slope = stats.siegelslopes(values, steps).slope
    line = values - slope * steps
    assert fit_residuals(values, steps)[0] == pytest.approx(line - np.median(line))


def test_platforms_are_compared_with_those_of_their_tools_if_there_are_three() -> None:
    odd = LADDER.copy()
    odd[3] += np.log(6)
    logs = np.column_stack([LADDER, LADDER, LADDER, odd, odd, odd])
    tools = ["onnx"] * 3 + ["tflite"] * 3
    for column, (reference, is_alike) in enumerate(median_platforms(logs, ["cpu"] * 6, tools)):
        residuals, scale = fit_residuals(logs[:, column], reference)
        assert is_alike
        assert scale is not None
        assert not outliers(residuals, scale).any()
    few, is_alike = median_platforms(logs[:, :5], ["cpu"] * 5, tools[:5])[3]
    residuals, scale = fit_residuals(logs[:, 3], few)
    assert np.flatnonzero(outliers(residuals, scale or 0.0)).tolist() == [3]
    assert not is_alike


def test_all_equal_values_have_no_outlier() -> None:
    values = np.full(6, 2.0)
    residuals, scale = fit_residuals(values, np.zeros(6))
    assert scale == 0
    assert not outliers(residuals, 0.0).any()
    assert not unit_slips(residuals).any()


def test_sentinels_are_found_in_any_unit_and_only_they() -> None:
    values = np.array([0.0, -1.0, 2.0**64 - 1, (2.0**31 - 1) * 1e3, 5e6, np.nan])
    assert sentinels(values, (1.0, 1e3)).tolist() == [True, True, True, True, False, False]


@pytest.mark.parametrize(
    ("values", "share"), [([], 0), ([1, 2], 0), ([1, 1, 2, np.nan, np.nan], 2 / 3), ([3, 3], 1)]
)
def test_ties_are_a_share_of_the_known(values: list[float], share: float) -> None:
    assert tied_share(np.array(values, dtype=float)) == pytest.approx(share)


def _findings(frame, what: str) -> list[dict[str, object]]:
    table = make_table("trust/findings", frame, Selection())
    return table.frame.filter(table.frame["what"].str.starts_with(what)).to_dicts()


FAST = [1e6 * (i + 1) for i in range(10)]


def test_a_second_name_for_one_board_is_a_duplicate(make_grid) -> None:
    other = [value**0.8 for value in FAST]
    frame = make_grid({"board": FAST, "twin": FAST, "other": other})
    (found,) = _findings(frame, "duplicate")
    assert found["platform_key"] == "twin/onnx/b1/t1"
    assert found["figure"] == 1
    assert str(found["detail"]).startswith("equal to board/onnx/b1/t1: 10 models")
    assert "count it once" in str(found["what_to_do"])
    tripled = make_grid({"board": FAST, "twin": [3 * value for value in FAST], "other": other})
    assert _findings(tripled, "duplicate") == []
    assert _findings(tripled, "proportional")[0]["figure"] == pytest.approx(3)


def test_a_slow_state_is_found_on_its_own_platform_only(make_grid) -> None:
    slow = [*FAST[:4], FAST[4] * 5, *FAST[5:]]
    frame = make_grid({"d1": FAST, "d2": [value**0.9 for value in FAST], "d3": slow})
    (found,) = _findings(frame, "outlier")
    assert (found["platform_key"], found["model"]) == ("d3/onnx/b1/t1", "m4")
    assert found["figure"] == pytest.approx(5, rel=0.2)
    slipped = [*FAST[:4], FAST[4] / 1e3, *FAST[5:]]
    frame = make_grid({"d1": FAST, "d2": [value**0.9 for value in FAST], "d3": slipped})
    (found,) = _findings(frame, "unit slip")
    assert "near 10^-3" in str(found["detail"])


def test_another_runtime_shows_a_gross_error_and_no_slow_state(make_grid) -> None:
    def found(factor: float, *runtimes: str) -> list[str]:
        odd = [*FAST[:4], FAST[4] * factor, *FAST[5:]]
        frame = make_grid(
            {"d1": FAST, "d2": [value**0.9 for value in FAST], "d3": odd},
            **{f"d{n}": {"runtime": one} for n, one in enumerate(runtimes, 1)},
        )
        return [
            str(one["what"]) for kind in ("outlier", "unit slip") for one in _findings(frame, kind)
        ]

    unlike = ("onnx", "tflite", "executorch")
    assert found(5, "onnx", "onnx", "onnx") == ["outlier against the fit"]
    assert found(11, *unlike) == []
    assert found(40, *unlike) == ["outlier against the fit"]
    assert found(1e3, *unlike) == ["unit slip"]


def test_what_a_precision_gains_on_a_device_is_not_doubted(make_attempts) -> None:
    gains = {"d1": 1.3, "d2": 1.4, "d3": 5.0}
    rows = [
        {"model": f"m{i}", "device": device, "platform_key": f"{device}/onnx/cpu/eager/{word}/b1",
         "precision": word, "latency_p50_ns": value / (gain if word == "int8" else 1)
         * (5 if (device, word, i) == ("d3", "int8", 4) else 1)}
        for device, gain in gains.items()
        for word in ("fp32", "int8")
        for i, value in enumerate(FAST if word == "fp32" else FAST[:6])
    ]  # fmt: skip
    table = make_table("trust/findings", make_attempts(rows), Selection(precision="any"))
    found = table.frame.filter(table.frame["what"].str.starts_with("outlier"))
    assert found["model"].to_list() == ["m4:int8"]


def test_a_newer_sweep_that_contradicts_older_ones_is_found(make_attempts) -> None:
    rows = [
        {"sweep_id": f"s{n}", "started_utc": n, "latency_p50_ns": value, "model": model}
        for model, values in {"a": (1e6, 1.1e6, 4e6), "b": (1e6, 1.1e6, 1.2e6)}.items()
        for n, value in enumerate(values)
    ]
    (found,) = _findings(make_attempts(rows), "outlier against itself")
    assert found["model"] == "a"
    assert found["figure"] == pytest.approx(4 / 1.05)
    assert has(str(found["detail"]), "median", "2", "1.05")


def test_a_platform_with_unlike_memory_metrics_is_found_even_when_it_is_the_only_one(
    make_attempts,
) -> None:
    rows = [
        {"model": "a", "latency_p50_ns": 1e6},
        {"model": "b", "latency_p50_ns": 2e6, "memory_metric": "cuda_allocated"},
    ]
    (found,) = _findings(make_attempts(rows), "different")
    assert found["what"] == "different memory metrics"
    assert found["detail"] == "memory_metric: cuda_allocated | vmhwm_growth"
    rows[1] |= {"runtime_version": "9", "memory_metric": "vmhwm_growth"}
    (found,) = _findings(make_attempts(rows), "different")
    assert found["what"] == "different facts"


def test_a_clean_data_set_has_no_finding(make_grid) -> None:
    rng = np.random.default_rng(0)
    frame = make_grid(
        {f"d{n}": np.array(FAST) ** (0.9 + n / 20) * np.exp(rng.normal(0, 0.1, 10))
         for n in range(4)}
    )  # fmt: skip
    table = make_table("trust/findings", frame, Selection())
    assert table.frame.is_empty()
    assert table.notes[-1] == "0 findings: none."
