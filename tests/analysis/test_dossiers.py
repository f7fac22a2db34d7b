"""What is told about one device, one model and one sweep."""

import polars as pl
import pytest

from fleetrank.analysis.dossiers.dossier import MAX_POINTS, Dossier
from fleetrank.analysis.dossiers.subjects import device_dossier, model_dossier, sweep_dossier
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.tables.table import Table


def table(dossier: Dossier, title: str) -> Table:
    return next(table for table in dossier.tables if table.title == title)


def facts(dossier: Dossier) -> dict[str, str]:
    return dict(table(dossier, "Facts").frame.iter_rows())


@pytest.fixture
def frame(make_attempts):
    """Two repeats of two models on a phone that warms up, and one failure on another."""
    phone = {"device": "phone", "tier": "edge"}
    rows = [
        {"model": model, "repeat": repeat, "latency_p50_ns": 1e6 * (value + repeat),
         "temp_c_before": 30.0 + repeat, "canary_ns_before": 5_000_000 + 100_000 * repeat,
         "started_utc": 2 * repeat + number, "os": f"Android {13 + repeat}", **phone}
        for number, (model, value) in enumerate((("a", 10), ("b", 20)))
        for repeat in (0, 1)
    ]  # fmt: skip
    failed = {"model": "a", "device": "other", "status": "failed", "error_kind": "timed_out",
              "error_stage": "run", "error_message": "no result", "started_utc": 9}  # fmt: skip
    return make_attempts([*rows, failed])


def test_a_device_has_its_newest_facts_and_its_conditions_over_time(frame) -> None:
    found = device_dossier(frame, "phone")
    assert facts(found)["os"] == "Android 14"
    assert "governor" not in facts(found)
    by_title = {series.title: series for series in found.series}
    assert [value for _, value in by_title["Temperature before each repeat"].points] == [
        30.0, 30.0, 31.0, 31.0,
    ]  # fmt: skip
    assert by_title["Canary model"].unit == "ms"
    assert "Battery" not in by_title


def test_the_facts_of_a_model_are_those_without_a_memory(make_attempts) -> None:
    rows = [
        {"model": "writer", "workload": workload, "parameters": parameters, "started_utc": at}
        for at, (workload, parameters) in enumerate(
            (("decode@64", 1000), ("segment@64+k8+n16", 1300))
        )
    ]
    assert facts(model_dossier(make_attempts(rows), "writer"))["parameters"] == "1000"
    assert facts(model_dossier(make_attempts(rows[1:]), "writer"))["parameters"] == "1300"


def test_a_device_s_worst_repeating_cells_come_first(frame) -> None:
    rows = table(device_dossier(frame, "phone"), "Repeatability").frame
    assert rows["model"].to_list() == ["a", "b"]
    # 10 and 11 ms: a range of 1 over the median 10.5.
    assert rows["repeats_spread_percent"][0] == pytest.approx(100 / 10.5)


@pytest.mark.slow
def test_canary_drift_is_last_over_first(frame) -> None:
    (row,) = table(device_dossier(frame, "phone"), "Canary drift").frame.to_dicts()
    assert (row["n_runs"], row["first_ms"], row["last_ms"]) == (4, 5.0, 5.1)
    assert row["drift_percent"] == pytest.approx(2.0)
    titles = [one.title for one in device_dossier(frame, "other").tables]
    assert "Canary drift" not in titles


def test_a_device_on_which_all_failed_says_so(frame) -> None:
    found = device_dossier(frame, "other")
    assert table(found, "Failed attempts").frame["error_kind"].to_list() == ["timed_out"]
    assert table(found, "Repeatability").frame.is_empty()


def test_a_model_has_its_figures_per_platform_and_its_failures(frame) -> None:
    found = model_dossier(frame, "a")
    assert facts(found)["family"] == "mobile_cnn"
    (row,) = table(found, "Latency and memory").frame.to_dicts()
    assert (row["device"], row["latency_ms"], row["latency_low_ms"]) == ("phone", 10.5, None)
    assert table(found, "Failed attempts").frame.height == 1


def test_a_sweep_has_its_devices_failures_and_versions(frame) -> None:
    found = sweep_dossier(frame, "s1")
    rows = {row["device"]: row for row in table(found, "Devices").frame.to_dicts()}
    assert (rows["phone"]["n_ok"], rows["other"]["n_failed"]) == (4, 1)
    kinds = table(found, "Failures by kind").frame
    assert kinds.row(0)[:3] == ("timed_out", "run", 1)
    assert ("onnx", "1.0") in table(found, "Versions of the rows").frame.rows()


@pytest.mark.parametrize("tell", [device_dossier, model_dossier, sweep_dossier])
def test_an_unknown_name_is_no_data(frame, tell) -> None:
    with pytest.raises(NoDataError) as raised:
        tell(frame, "phoney")
    assert raised.value.remedy
    if tell is device_dossier:
        assert "'phone'" in raised.value.remedy


@pytest.mark.slow
def test_a_long_series_is_thinned_evenly(make_attempts) -> None:
    rows = [{"repeat": n, "latency_p50_ns": 1e6, "temp_c_before": float(n), "started_utc": n}
            for n in range(1000)]  # fmt: skip
    (series,) = device_dossier(make_attempts(rows), "d1").series
    assert len(series.points) <= MAX_POINTS
    assert [value for _, value in series.points[:3]] == [0.0, 3.0, 6.0]


@pytest.mark.slow
def test_what_was_excluded_enters_no_figure_and_is_told(frame) -> None:
    first = pl.when(pl.col("repeat") == 0).then(pl.lit("too cold")).alias("excluded")
    marked = frame.with_columns(first)
    model, device = model_dossier(marked, "a"), device_dossier(marked, "phone")
    assert table(model, "Latency and memory").frame["n_repeats"].to_list() == [1]
    assert table(device, "Platforms").frame["n_attempts"].to_list() == [2]
    assert all(len(series.points) == 2 for series in device.series)
    assert table(model, "Facts").notes == (
        "Dropped: 2 rows of 1 sweep excluded by hand: too cold.",
    )
    assert "too cold" in table(device, "Facts").notes[0]


def test_a_device_of_which_all_is_excluded_keeps_its_facts(frame) -> None:
    marked = frame.with_columns(pl.lit("broken").alias("excluded"))
    found = device_dossier(marked, "phone")
    assert facts(found)["os"] == "Android 14"
    assert found.series == ()
    assert all(table.frame.is_empty() for table in found.tables if table.title != "Facts")


def test_an_excluded_sweep_keeps_its_page_which_says_so(frame) -> None:
    found = sweep_dossier(frame.with_columns(pl.lit("broken").alias("excluded")), "s1")
    assert table(found, "Devices").frame["n_ok"].sum() == 4
    assert "excluded by hand: broken." in table(found, "Devices").notes[0]


def test_every_latency_of_a_dossier_names_its_statistic_and_placement(make_attempts) -> None:
    facts = {"statistic": "minimum", "backend_nodes": 54, "graph_nodes": 65}
    frame = make_attempts([{"latency_p50_ns": 1e6, **facts}, {"device": "d2"}])
    (row, other) = table(model_dossier(frame, "a"), "Latency and memory").frame.to_dicts()
    assert (row["statistic"], row["placement"]) == ("minimum", "54/65")
    assert (other["statistic"], other["placement"]) == (None, None)
    found = device_dossier(frame, "d1")
    assert table(found, "Repeatability").frame["statistic"].to_list() == ["minimum"]
    assert table(found, "Platforms").frame["statistic"].to_list() == [["minimum"]]
