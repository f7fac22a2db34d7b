"""Table `scaling`: curves over batch, length and size of images, from ordinary cells."""

from collections.abc import Callable, Iterable

import polars as pl
import pytest
from wording import has

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import make_table

Make = Callable[[Iterable[dict[str, object]]], pl.LazyFrame]
FAILED = {"status": "failed", "latency_p50_ns": None, "samples_ns": None}


def _batch(batch: int, ms: float | None, **more: object) -> dict[str, object]:
    platform = f"xeon/onnx/cpu/eager/fp32/b{batch}/t1/afree/{{}}"
    row = {"model": "net", "platform_key": platform, "batch": batch, "cell_key": f"b{batch}"}
    latency = {"latency_p50_ns": ms * 1e6} if ms is not None else FAILED
    return row | latency | more


def _table(frame: pl.LazyFrame, name: str = "scaling", **settings: str) -> list[dict[str, object]]:
    selection = Selection(settings=tuple(sorted(settings.items())))
    return make_table(name, frame, selection).frame.to_dicts()


@pytest.mark.slow
def test_efficiency_and_gain_are_those_computed_by_hand(make_attempts: Make) -> None:
    rows = [_batch(1, 10.0), _batch(2, 12.0), _batch(4, 20.0)]
    one, two, four = _table(make_attempts(rows), "scaling/points")
    assert one["items_per_s"] == pytest.approx(100)
    assert two["items_per_s"] == pytest.approx(2 / 0.012)
    assert one["efficiency"] == 1
    assert two["efficiency"] == pytest.approx(10 / 12)
    assert four["efficiency"] == pytest.approx(10 / 20)
    assert four["rate_ratio"] == pytest.approx(2)
    assert one["gain"] == pytest.approx(2 * 10 / 12)
    assert four["gain"] is None
    assert one["platform"] == "xeon/onnx/cpu/eager/fp32/b*/t1/afree/{}"


def test_a_curve_has_range_slope_knee_and_best_rate(make_attempts: Make) -> None:
    rows = [_batch(b, ms) for b, ms in ((1, 10.0), (2, 12.0), (4, 20.0), (8, 39.0))]
    (row,) = _table(make_attempts(rows))
    assert (row["over"], row["smallest"], row["largest"], row["n_points"]) == ("batch", 1, 8, 4)
    assert row["knee"] == 4  # gains 1.67, 1.2, 1.03
    assert row["best_at"] == 8
    assert 0.6 < row["slope"] < 0.7
    assert 0.9 < row["r2"] < 1
    assert row["largest_that_fits"] is None


@pytest.mark.slow
def test_a_measured_cell_above_a_limit_of_memory_has_not_failed(make_attempts: Make) -> None:
    rows = [_batch(b, 10.0 * b, peak_memory_bytes=b << 20) for b in (1, 2, 4, 8)]
    retried = rows[3] | FAILED | {"error_kind": "out_of_memory", "attempt": -1}
    selection = Selection(max_memory_mib=4)
    (row,) = make_table("scaling", make_attempts([*rows, retried]), selection).frame.to_dicts()
    assert (row["largest"], row["out_of_memory_at"], row["other_ends"]) == (4, None, None)


@pytest.mark.slow
def test_flags_of_points_are_flags_of_their_curve(make_attempts: Make) -> None:
    rows = [
        _batch(1, 10.0, flags=["spread"]), _batch(2, 12.0), _batch(4, 20.0, flags=["busy_host"]),
        _batch(8, None, error_kind="timed_out"),
    ]  # fmt: skip
    table = make_table("scaling", make_attempts(rows), Selection())
    assert table.frame["flags"].to_list() == [["busy_host", "spread"]]
    points = _table(make_attempts(rows), "scaling/points")
    assert [point["flags"] for point in points] == [["spread"], [], ["busy_host"], None]


@pytest.mark.slow
def test_out_of_memory_is_a_typed_end_of_the_curve(make_attempts: Make) -> None:
    rows = [_batch(1, 10.0), _batch(2, 12.0)]
    rows += [_batch(b, None, error_kind="out_of_memory", error_message="no") for b in (4, 8)]
    rows += [_batch(16, None, error_kind="timed_out", error_message="slow")]
    (row,) = _table(make_attempts(rows))
    assert (row["largest_that_fits"], row["out_of_memory_at"]) == (2, 4)
    assert row["other_ends"] == "16: timed_out"
    assert (row["largest"], row["n_points"]) == (2, 2)
    points = _table(make_attempts(rows), "scaling/points")
    assert [(p["value"], p["reason"]) for p in points][2:] == [
        (4, "out_of_memory"), (8, "out_of_memory"), (16, "timed_out"),
    ]  # fmt: skip
    assert points[1]["gain"] is None


def test_a_failed_attempt_that_was_retried_is_no_end(make_attempts: Make) -> None:
    rows = [_batch(1, 10.0), _batch(2, None, error_kind="out_of_memory"), _batch(2, 12.0)]
    rows[2]["attempt"] = 1
    (row,) = _table(make_attempts(rows))
    assert (row["n_points"], row["out_of_memory_at"]) == (2, None)


def test_only_failed_cells_are_no_curve(make_attempts: Make) -> None:
    rows = [_batch(b, None, error_kind="out_of_memory") for b in (1, 2)]
    with pytest.raises(NoDataError):
        _table(make_attempts(rows))


def _length(workload: str, ms: float, tokens: int) -> dict[str, object]:
    return {
        "model": "net", "workload": workload, "latency_p50_ns": ms * 1e6, "cell_key": workload,
        "tokens_per_inference": tokens, "state_bytes": 1 << 20,
    }  # fmt: skip


@pytest.mark.slow
def test_prompts_and_steps_are_two_curves_over_length(make_attempts: Make) -> None:
    rows = [_length(f"prefill@{n}", n * 0.5, n) for n in (32, 64, 128)]
    rows += [_length(f"decode@{n}", 3.0, 1) for n in (32, 64, 128)]
    decode, prefill = _table(make_attempts(rows))
    assert (prefill["over"], prefill["workload"]) == ("length", "prefill@*")
    assert prefill["slope"] == pytest.approx(1)
    assert prefill["r2"] == pytest.approx(1)
    assert (decode["workload"], decode["slope"]) == ("decode@*", pytest.approx(0, abs=1e-9))
    assert decode["knee"] is None
    first = _table(make_attempts(rows), "scaling/points", over="length")[3]
    assert (first["item"], first["items_per_s"], first["state_mib"]) == ("token", 2000, 1)


def _size(pixels: int, ms: float, axes: str | None) -> dict[str, object]:
    end = "" if axes is None else f"/{axes}"
    return {
        "model": "net", "platform_key": f"xeon/onnx/cpu/eager/fp32/b1/t1/afree/{{}}{end}",
        "cell_key": f"{pixels}{axes}", "input_size": pixels, "axes": axes,
        "latency_p50_ns": ms * 1e6,
    }  # fmt: skip


def test_the_size_of_images_is_an_axis(make_attempts: Make) -> None:
    rows = [_size(n, n * n / 1e4, f"input_size={n}") for n in (112, 224, 448)]
    (row,) = _table(make_attempts(rows))
    assert (row["over"], row["smallest"], row["largest"]) == ("input_size", 112, 448)
    assert row["slope"] == pytest.approx(2)


@pytest.mark.slow
def test_the_models_own_size_joins_from_an_ordinary_cell(make_attempts: Make) -> None:
    rows = [_size(112, 1.0, "input_size=112"), _size(224, 4.0, None)]
    (row,) = _table(make_attempts(rows))
    assert (row["n_points"], row["largest"]) == (2, 224)
    rows.append(_size(224, 9.0, "input_size=224"))
    points = _table(make_attempts(rows), "scaling/points")
    assert [p["latency_p50_ms"] for p in points] == [1.0, 9.0]


def test_other_weights_are_another_curve(make_attempts: Make) -> None:
    rows = [_batch(b, 10.0, weights_id="seeded-0") for b in (1, 2)]
    rows += [_batch(b, 10.0, weights_id="pretrained-x") for b in (4, 8)]
    assert [row["n_points"] for row in _table(make_attempts(rows))] == [2, 2]


@pytest.mark.slow
def test_without_two_values_the_remedy_says_what_to_measure(make_attempts: Make) -> None:
    with pytest.raises(NoDataError, match="two batches") as raised:
        _table(make_attempts([_batch(1, 10.0)]))
    assert "batch: [1, 2, 4, 8]" in raised.value.remedy
    with pytest.raises(NoDataError, match="two values of length"):
        _table(make_attempts([_batch(1, 10.0), _batch(2, 11.0)]), over="length")


def test_a_size_given_as_an_axis_does_not_rename_the_model_elsewhere(make_attempts: Make) -> None:
    rows = [_size(112, 1.0, "input_size=112"), _size(224, 4.0, None)]
    comparable = Session(make_attempts(rows), Selection()).comparable
    assert sorted(comparable.cells["identity"]) == ["net", "net (input_size=112)"]
    assert not has(comparable.notes, "different cards")


@pytest.mark.slow
def test_steps_of_training_are_a_curve_over_their_own_batch(make_attempts: Make) -> None:
    rows = [
        {"model": "net", "workload": f"train@{n}", "batch": 1, "cell_key": f"t{n}",
         "latency_p50_ns": 1e7 * n}
        for n in (2, 4, 8)
    ]  # fmt: skip
    (row,) = _table(make_attempts(rows))
    assert (row["over"], row["workload"], row["smallest"], row["largest"]) == (
        "batch", "train@*", 2, 8,
    )  # fmt: skip
    assert (row["item"], row["best_per_s"]) == ("sample", pytest.approx(100))


def _thread(threads: int, ms: float, cpus: str | None, **more: object) -> dict[str, object]:
    pinned = more.get("affinity_name", f"a{cpus or 'free'}")
    row = _batch(1, ms, threads=threads, affinity=cpus, cell_key=f"t{threads}{cpus}")
    key = str(row["platform_key"]).replace("/t1/afree/", f"/t{threads}/{pinned}/")
    return row | {"platform_key": key, "device_facts": '{"cores_by_kind":"7 + 4-6 + 0-3"}'}


def test_threads_are_an_axis_and_unlike_cores_are_marked(make_attempts: Make) -> None:
    rows = [_thread(1, 8.0, "7"), _thread(2, 5.0, "4,5,6"), _thread(4, 2.5, "4,5,6,7")]
    table = make_table("scaling", make_attempts(rows), Selection())
    (row,) = table.frame.to_dicts()
    assert (row["over"], row["platform"]) == ("threads", "xeon/onnx/cpu/eager/fp32/b1/t*/a*/{}")
    assert (row["smallest"], row["largest"], row["n_points"], row["best_at"]) == (1, 4, 3, 4)
    assert has(row["reason"], "2 threads on 4-6", "unlike cores")
    assert any(has(note, "1 thread on 7", "4 threads on 4-7") for note in table.notes)
    points = _table(make_attempts(rows), "scaling/points", over="threads")
    assert [point["efficiency"] for point in points] == pytest.approx([1, 0.8, 0.8])
    assert [point["cpus"] for point in points] == ["7", "4,5,6", "4,5,6,7"]
    small = [_thread(n, ms, "0,1,2,3") for n, ms in ((1, 40.0), (2, 21.0), (4, 12.0))]
    big, little = _table(make_attempts([*rows, *small]))
    assert (big["platform"], big["n_points"]) == (row["platform"], 3)
    assert (little["platform"], little["n_points"]) == (
        "xeon/onnx/cpu/eager/fp32/b1/t*/a0,1,2,3/{}", 3,
    )  # fmt: skip
    assert "unlike" not in str(little["reason"])


def test_free_threads_beyond_the_cores_are_a_point_of_the_curve(make_attempts: Make) -> None:
    rows = [
        _thread(1, 8.0, "0", affinity_name="afirst_cores"),
        _thread(2, 4.0, "0,1", affinity_name="afirst_cores"),
        _thread(4, 4.5, None),
    ]
    (alike,) = _table(make_attempts(rows[:2]))
    assert "/t*/afirst_cores/" in str(alike["platform"])
    (row,) = _table(make_attempts([one | {"device_facts": None} for one in rows]))
    assert (row["n_points"], row["knee"]) == (3, 2)
    assert has(row["reason"], "2 threads on 0-1", "4 threads on any")
