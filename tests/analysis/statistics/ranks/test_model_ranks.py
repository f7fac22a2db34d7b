"""Table `trust` with `part=ranks` on frames made by hand."""

import numpy as np
import polars as pl
import pytest
from scipy import stats
from wording import has

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import make_table

pytestmark = pytest.mark.slow


def rows_of(latencies: dict[str, list[float]], repeats: int = 5) -> list[dict[str, object]]:
    """Latency in ms of models a, b, ... on each device, with 1 % noise."""
    rng = np.random.default_rng(0)
    return [
        {"model": "abcdefgh"[i], "device": device, "repeat": repeat,
         "latency_p50_ns": float(1e6 * ms * np.exp(0.01 * rng.normal()))}
        for device, series in latencies.items()
        for i, ms in enumerate(series)
        for repeat in range(repeats)
    ]  # fmt: skip


def shown(frame: pl.LazyFrame, **settings: float) -> pl.DataFrame:
    return make_table("trust/ranks", frame, Selection(settings=tuple(settings.items()))).frame


def test_close_models_share_a_set_and_a_distant_one_has_one_rank(make_attempts) -> None:
    rows = rows_of({"d1": [3.0, 1.0, 1.001, 1.002, 9.0]})
    frame = shown(make_attempts(rows)).filter(pl.col("level") == "platform")
    sets = {row["model"]: (row["rank_low"], row["rank_high"]) for row in frame.to_dicts()}
    assert sets == {"b": (1, 3), "c": (1, 3), "d": (1, 3), "a": (4, 4), "e": (5, 5)}
    assert frame["rank"].to_list() == [1, 2, 3, 4, 5]
    for row in frame.to_dicts():
        mine = [r["latency_p50_ns"] for r in rows if r["model"] == row["model"]]
        assert row["latency_ms"] == pytest.approx(np.median(mine) / 1e6)


def test_few_repeats_give_a_rank_without_a_set(make_attempts) -> None:
    frame = shown(make_attempts(rows_of({"d1": [1.0, 2.0, 3.0, 4.0, 5.0]}, repeats=4)))
    assert frame["rank"].to_list() == [1, 2, 3, 4, 5]
    assert frame["rank_low"].null_count() == 5
    assert all(has(reason, "4", "5") for reason in frame["reason"])


def test_equal_repeats_give_a_set(make_attempts) -> None:
    rows = [row | {"latency_p50_ns": 1e6 * (1 + "abcde".index(row["model"]))}
            for row in rows_of({"d1": [1.0] * 5})]  # fmt: skip
    frame = shown(make_attempts(rows))
    assert frame["rank_low"].to_list() == frame["rank_high"].to_list() == [1, 2, 3, 4, 5]


def test_the_share_of_devices_on_which_a_model_is_among_the_fastest(make_attempts) -> None:
    orders = {"d1": [1, 2, 3, 4, 5, 6], "d2": [1, 2, 4, 3, 5, 6], "d3": [3, 1, 2, 4, 5, 6]}
    frame = shown(make_attempts(rows_of(orders)), k=2).filter(pl.col("level") == "tier")
    shares = dict(zip(frame["model"], frame["p_among_k"], strict=True))
    assert shares == pytest.approx({"a": 2 / 3, "b": 1, "c": 1 / 3, "d": 0, "e": 0, "f": 0})
    row = frame.filter(pl.col("model") == "b").to_dicts()[0]
    exact = stats.binomtest(3, 3).proportion_ci(method="exact")
    assert (row["p_low"], row["p_high"]) == pytest.approx((exact.low, exact.high))
    assert (row["n_devices"], row["k"], row["rank"]) == (3, 2, 2)


def test_a_model_missing_on_a_device_is_left_out_of_the_tier(make_attempts) -> None:
    orders = {f"d{i}": [1, 2, 3, 4, 5, 6] for i in range(3)}
    rows = [row for row in rows_of(orders) if (row["device"], row["model"]) != ("d1", "c")]
    frame = shown(make_attempts(rows)).filter(pl.col("level") == "tier")
    assert sorted(frame["model"]) == ["a", "b", "d", "e", "f"]
    assert frame["n_models"].unique().to_list() == [5]


def test_as_many_models_as_k_have_no_tier_rows(make_attempts) -> None:
    frame = make_attempts(rows_of({"d1": [1, 2, 3, 4, 5], "d2": [1, 2, 3, 4, 5]}))
    assert shown(frame, k=5).filter(pl.col("level") == "tier").is_empty()
    assert shown(frame, k=4).filter(pl.col("level") == "tier").height == 5


@pytest.mark.parametrize("k", [0, 2.5])
def test_a_k_out_of_range_is_refused(make_attempts, k: float) -> None:
    with pytest.raises(AnalysisError) as error:
        shown(make_attempts(rows_of({"d1": [1.0] * 5})), k=k)
    assert "whole number" in error.value.remedy


def test_rows_without_a_figure_have_no_ranks_and_no_defect(make_attempts) -> None:
    rows = [row | {"latency_p50_ns": None} for row in rows_of({"d1": [1.0, 2.0, 3.0]})]
    assert shown(make_attempts(rows)).is_empty()
