"""Steps of training beside inferences of the same batch, and the memory that they hold."""

import pytest
from wording import has

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.stored.columns import ORIGINS
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import make_table

MIB = 2**20
STEP = {
    "model": "net", "workload": "train@4", "batch": 4, "latency_p50_ns": 80e6,
    "flops": 3_000_000, "parameters": MIB, "peak_memory_bytes": 20 * MIB,
}  # fmt: skip


def test_rates_and_memory_of_a_step(make_attempts) -> None:
    (row,) = make_table("latency/training", make_attempts([STEP]), Selection()).frame.to_dicts()
    assert (row["optimizer"], row["step_p50_ms"]) == ("sgd", 80)
    assert row["steps_per_s"] == pytest.approx(12.5)
    assert row["samples_per_s"] == pytest.approx(50)
    assert row["gflops_per_s"] == pytest.approx(3e6 * 4 / 0.080 / 1e9)
    assert (row["weights_mib"], row["gradients_mib"], row["optimizer_mib"]) == (4, 4, 4)
    assert row["rest_mib"] == pytest.approx(20 - 12)
    assert row["over_inference"] is None


def test_adamw_keeps_two_moments(make_attempts) -> None:
    attempts = make_attempts([STEP | {"workload": "train@4+adamw"}])
    (row,) = make_table("latency/training", attempts, Selection()).frame.to_dicts()
    assert (row["optimizer"], row["optimizer_mib"], row["rest_mib"]) == ("adamw", 8, 4)


def test_a_step_is_compared_with_an_inference_of_its_batch_only(make_attempts) -> None:
    image = STEP | {"workload": None, "latency_p50_ns": 20e6}
    other = image | {"batch": 1, "platform_key": "elsewhere", "latency_p50_ns": 7e6}
    table = make_table("latency/training", make_attempts([STEP, image, other]), Selection())
    (row,) = table.frame.to_dicts()
    assert row["over_inference"] == pytest.approx(4)


@pytest.mark.slow
def test_an_inference_of_several_weights_is_not_compared(make_attempts) -> None:
    images = [
        STEP | {"workload": None, "weights_id": name, "cell_key": name, "latency_p50_ns": ns}
        for name, ns in (("seeded:0", 20e6), ("seeded:1", 40e6))
    ]
    table = make_table("latency/training", make_attempts([STEP, *images]), Selection())
    assert table.frame["over_inference"].to_list() == [None]


@pytest.mark.slow
def test_a_step_above_a_limit_of_memory_has_not_failed(make_attempts) -> None:
    large = STEP | {"model": "large", "peak_memory_bytes": 900 * MIB}
    table = make_table(
        "latency/training", make_attempts([STEP, large]), Selection(max_memory_mib=100)
    )
    assert table.frame["model"].to_list() == ["net"]
    assert not has(table.notes, "failed")


def test_a_step_of_no_time_has_no_rate(make_attempts) -> None:
    attempts = make_attempts([STEP | {"latency_p50_ns": 0.0}])
    (row,) = make_table("latency/training", attempts, Selection()).frame.to_dicts()
    assert (row["step_p50_ms"], row["steps_per_s"], row["gflops_per_s"]) == (0, None, None)


def test_unknown_memory_and_parameters_are_null(make_attempts) -> None:
    attempts = make_attempts([STEP | {"parameters": None, "peak_memory_bytes": None}])
    (row,) = make_table("latency/training", attempts, Selection()).frame.to_dicts()
    assert (row["weights_mib"], row["peak_memory_mib"], row["rest_mib"]) == (None, None, None)


@pytest.mark.slow
def test_a_batch_that_ran_out_of_memory_leaves_the_others(make_attempts) -> None:
    too_large = STEP | {"workload": "train@64", "batch": 64, "status": "failed"}
    doubtful = STEP | {"model": "other", "flags": ["busy_host"], "origin": "simulated"}
    rows = make_attempts([STEP, too_large, doubtful])
    table = make_table("latency/training", rows, Selection(origins=ORIGINS))
    assert table.frame["workload"].to_list() == ["train@4", "train@4"]
    assert has(table.notes[0], "1 of 2 rows")
    assert has(table.notes, "1 cell with failed attempts only")
    with pytest.raises(NoDataError) as found:
        make_table("latency/training", make_attempts([too_large]), Selection())
    assert "train@64" in found.value.message


def test_a_failed_inference_has_no_ratio(make_attempts) -> None:
    image = STEP | {"workload": None, "status": "failed"}
    (row,) = make_table(
        "latency/training", make_attempts([STEP, image]), Selection()
    ).frame.to_dicts()
    assert row["over_inference"] is None


def test_without_steps_the_remedy_is_a_sweep(make_attempts) -> None:
    with pytest.raises(NoDataError) as found:
        make_table("latency/training", make_attempts([STEP | {"workload": None}]), Selection())
    assert "train@8" in found.value.remedy
