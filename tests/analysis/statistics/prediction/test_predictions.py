"""Predictions of platforms: which devices serve, what a row says, and what is refused."""

import numpy as np
import polars as pl
import pytest
from wording import has

from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import make_table

MODELS = [f"m{at:02}" for at in range(16)]
DEVICES = [f"d{at:02}" for at in range(14)]


def fleet(make_attempts, new=MODELS[:5], facts=None, **of_device):
    """Measured devices, and `new` with some models; `of_device` overrides facts of one device."""
    rng = np.random.default_rng(0)
    size, speed = rng.normal(size=len(MODELS)), rng.normal(size=len(DEVICES) + 1)
    rows = []
    for column, device in enumerate([*DEVICES, "new"]):
        for row, model in enumerate(MODELS):
            value = 1e6 * np.exp(size[row] + speed[column] + 0.05 * rng.normal())
            if device == "new" and model not in new:
                continue
            rows.append(
                {
                    "model": model, "device": device, "latency_p50_ns": value,
                    "peak_memory_bytes": int(value), "energy_mj": value / 1e6,
                    "flops": int(1e9 * np.exp(size[row])), "parameters": 10**6 + row,
                }
                | (facts or {}) | of_device.get(device, {})
            )  # fmt: skip
    return make_attempts(rows)


def predicted(frame, **given):
    settings = tuple((name, value) for name, value in given.pop("settings", {}).items())
    return make_table("predict", frame, Selection(target="new", **({"settings": settings} | given)))


def by_model(table, column):
    return dict(table.frame.select("model", column).iter_rows())


@pytest.mark.slow
def test_a_hardly_measured_device_has_a_row_for_every_model(make_attempts):
    table = predicted(fleet(make_attempts))
    frame = table.frame
    assert frame["model"].to_list() == MODELS
    open_rows = frame.filter(pl.col("kind") == "predicted")
    assert open_rows["model"].to_list() == MODELS[5:]
    assert open_rows["measured_ms"].null_count() == open_rows.height
    assert (open_rows["low_ms"] < open_rows["predicted_ms"]).all()
    assert (open_rows["predicted_ms"] < open_rows["high_ms"]).all()
    assert (open_rows["high_ms"] / open_rows["low_ms"]).max() < 2
    assert set(frame["k"]) == {5}
    assert set(frame["n_devices"]) == {14}
    measured = frame.filter(pl.col("kind") == "measured")
    assert measured["low_ms"].null_count() == 5
    assert (measured["predicted_ms"] / measured["measured_ms"]).is_between(0.7, 1.4).all()
    assert table.notes[-1].startswith("PREDICTED: 11 of 16 rows")


SERVES_NOT = [
    {"precision": "int8"}, {"batch": 8}, {"runtime": "tflite"}, {"backend": "cuda"},
    {"mode": "compile"}, {"sample_kind": "vendor"}, {"statistic": "mean"},
    {"options": '{"amp":true}'}, {"origin": "imported"},
]  # fmt: skip
SERVES = [{}, {"runtime_version": "9.9"}, {"memory_metric": "vendor_estimate"}]


@pytest.mark.slow
def test_of_devices_with_one_unlike_fact_each_none_serves(make_attempts):
    facts = {f"d{at:02}": fact for at, fact in enumerate(SERVES_NOT + SERVES)}
    frame = fleet(make_attempts, facts={"statistic": "median"}, **facts)
    found = predicted(frame).frame
    assert set(found["n_devices"]) == {14 - len(SERVES_NOT)}
    named = " ".join(found["basis"])
    assert not any(f"d{at:02}" in named for at in range(len(SERVES_NOT)))


@pytest.mark.slow
def test_an_unlike_metric_of_memory_matters_to_memory(make_attempts):
    frame = fleet(make_attempts, d00={"memory_metric": "vendor_estimate"})
    memory = predicted(frame, settings={"quantity": "memory"}).frame
    assert set(memory["n_devices"]) == {13}
    assert {"predicted_mib", "low_mib", "high_mib", "measured_mib"} < set(memory.columns)


@pytest.mark.thorough
def test_of_several_platforms_of_a_device_those_with_the_threads_of_the_target_serve(
    make_attempts,
):
    both = pl.concat(
        [
            fleet(make_attempts),
            fleet(make_attempts, facts={"threads": 4, "latency_p50_ns": 1.0}).filter(
                pl.col("device") == "d00"
            ),
        ]
    )
    assert by_model(predicted(both), "predicted_ms") == by_model(
        predicted(fleet(make_attempts)), "predicted_ms"
    )


@pytest.mark.slow
@pytest.mark.parametrize(("fact", "serves"), [({"batch": 8}, False), ({"runtime": "tflite"}, True)])
def test_the_device_itself_serves_in_another_configuration_of_the_same_batch(
    make_attempts, fact, serves
):
    elsewhere = fleet(make_attempts, facts=fact).filter(pl.col("device") == "new")
    rows = predicted(pl.concat([fleet(make_attempts), elsewhere])).frame
    (basis,) = rows.filter(pl.col("platform_key") == "new/onnx/b1/t1")["basis"].unique()
    assert basis.endswith("itself in 1 other configuration") is serves


@pytest.mark.slow
def test_zero_and_missing_values_are_left_out(make_attempts):
    frame = fleet(make_attempts).with_columns(
        pl.when((pl.col("device") == "d03") & (pl.col("model") == "m07"))
        .then(0.0)
        .otherwise("latency_p50_ns")
        .alias("latency_p50_ns")
    )
    assert predicted(frame).frame["predicted_ms"].null_count() == 0


@pytest.mark.slow
def test_models_without_flops_and_parameters_are_predicted_from_devices(make_attempts):
    frame = fleet(make_attempts, facts={"flops": None, "parameters": None, "family": None})
    found = predicted(frame).frame
    assert found["predicted_ms"].null_count() == 0
    assert found["method"][0].endswith("0 model facts")


@pytest.mark.slow
def test_a_device_with_all_models_measured_shows_what_would_have_been_predicted(make_attempts):
    table = predicted(fleet(make_attempts, new=MODELS))
    assert set(table.frame["kind"]) == {"measured"}
    assert "measurement" in table.notes[-1]
    assert table.frame["predicted_ms"].null_count() == 0


def test_one_known_device_gives_predictions_and_no_narrow_lie(make_attempts):
    frame = fleet(make_attempts).filter(pl.col("device").is_in(["new", "d00"]))
    found = predicted(frame).frame.filter(pl.col("kind") == "predicted")
    assert found["low_ms"].null_count() == found.height
    assert found["predicted_ms"].null_count() == 0
    assert all("4 more models" in reason for reason in found["reason"])


@pytest.mark.slow
def test_without_another_device_flops_predict_from_nine_models_on(make_attempts):
    alone = fleet(make_attempts, new=MODELS[:10]).filter(
        (pl.col("device") == "new") | (pl.col("device") == "d00")
    )
    alone = alone.with_columns(
        pl.when(pl.col("device") == "d00").then(pl.lit("tflite")).otherwise("runtime")
        .alias("runtime")
    )  # fmt: skip
    table = predicted(alone)
    found = table.frame.filter(pl.col("kind") == "predicted")
    assert found["low_ms"].null_count() == 0
    assert set(found["calibration"]) == {"own"}
    assert has(table.title, "FLOPs", "parameters", "no known device")
    assert has(found["basis"], "10 models")


@pytest.mark.slow
def test_a_device_without_measurements_is_predicted_like_a_platform(make_attempts):
    frame = fleet(make_attempts)
    table = make_table("predict", frame, Selection(settings=(("like", "d01/onnx/b1/t1"),)))
    assert set(table.frame["kind"]) == {"predicted"}
    assert set(table.frame["k"]) == {0}
    width = (table.frame["high_ms"] / table.frame["low_ms"]).median()
    assert width > 10, "the speed of the device is unknown"


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 4])
def test_few_models_without_another_device_predict_nothing(make_attempts, n):
    alone = fleet(make_attempts, new=MODELS[:n], **{one: {"batch": 8} for one in DEVICES})
    with pytest.raises(NoDataError):
        predicted(alone)


@pytest.mark.slow
def test_nothing_to_predict_from_is_an_error(make_attempts):
    frame = fleet(make_attempts).with_columns(pl.lit(None, pl.Float64).alias("energy_mj"))
    with pytest.raises(NoDataError):
        predicted(frame, settings={"quantity": "energy"})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("selection", "error", "near"),
    [
        (Selection(target="nww"), NoDataError, "new"),
        (Selection(target="new", settings=(("models", "m0x"),)), NoDataError, "did you mean"),
        (Selection(settings=(("like", "d01/onnx/b1/t2"),)), NoDataError, "t1"),
        (Selection(target="new", settings=(("quantity", "latnecy"),)), AnalysisError, "latency"),
        (Selection(target="new", settings=(("coverage", 90),)), AnalysisError, "0.9"),
        (Selection(target="new", settings=(("coverage", 1),)), AnalysisError, "0.9"),
        (Selection(target="new", settings=(("coverage", 0.4),)), AnalysisError, "0.5"),
    ],
)
def test_a_wrong_name_or_number_is_refused_with_the_nearest(make_attempts, selection, error, near):
    with pytest.raises(error) as caught:
        make_table("predict", fleet(make_attempts), selection)
    assert near in caught.value.remedy


def test_a_simulated_target_that_is_left_out_is_named_with_the_option_to_include_it(make_attempts):
    simulated = pl.when(device="new").then(pl.lit("simulated")).otherwise("origin")
    frame = fleet(make_attempts).with_columns(origin=simulated)
    with pytest.raises(NoDataError) as caught:
        make_table("predict", frame, Selection(target="new"))
    assert "include_simulated=true" in caught.value.remedy


@pytest.mark.slow
def test_only_the_asked_models_are_listed_and_all_are_used(make_attempts):
    frame = fleet(make_attempts)
    whole, some = predicted(frame), predicted(frame, settings={"models": "m07, m1*"})
    assert some.frame["model"].to_list() == ["m07", *MODELS[10:]]
    assert by_model(some, "predicted_ms").items() <= by_model(whole, "predicted_ms").items()


@pytest.mark.slow
def test_the_source_narrows_the_known_devices(make_attempts):
    found = predicted(fleet(make_attempts), source="d0*").frame
    assert set(found["n_devices"]) == {10}
