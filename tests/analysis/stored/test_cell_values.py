import numpy as np
import polars as pl
import pytest
from scipy import stats
from wording import has

from fleetrank.analysis.stored.cell_notes import notes_on_failures
from fleetrank.analysis.stored.cell_values import cell_values


def one_cell(make_attempts, medians: list[float | None], **facts: object) -> dict[str, object]:
    rows = [{"repeat": n, "latency_p50_ns": p50, **facts} for n, p50 in enumerate(medians)]
    cells = cell_values(make_attempts(rows))
    assert cells.height == 1
    return cells.row(0, named=True)


def test_latency_is_the_median_of_process_medians(make_attempts) -> None:
    cell = one_cell(make_attempts, [10.0, 30.0, 11.0])
    assert cell["latency_ns"] == 11
    assert cell["n_repeats"] == 3


def test_two_repeats_carry_no_interval_and_say_so(make_attempts) -> None:
    cell = one_cell(make_attempts, [10.0, 11.0])
    assert (cell["latency_low_ns"], cell["latency_high_ns"]) == (None, None)
    assert has(cell["interval_reason"], "2", "interval", "5")


def test_a_cell_alone_has_the_interval_of_its_own_spread(make_attempts) -> None:
    values = np.array([14.0, 10.0, 12.0, 11.0, 13.0])
    cell = one_cell(make_attempts, values.tolist())
    # Of five values the median's variance is 1.434 times that of the mean (Hojo 1931).
    reach = stats.t.ppf(0.975, 4) * np.log(values).std(ddof=1) * (1.434 / 5) ** 0.5
    ends = (cell["latency_low_ns"], cell["latency_high_ns"])
    assert ends == pytest.approx((12 * np.exp(-reach), 12 * np.exp(reach)))
    assert cell["interval_reason"] is None


def test_the_cells_of_a_sweep_say_together_how_far_processes_spread(make_attempts) -> None:
    """Not those of another sweep, nor a noisy one."""

    def widths(*levels: float) -> list[float]:
        rows = [
            {"model": f"m{at}", "repeat": n, "latency_p50_ns": 100.0 + level * n,
             "sweep_id": "other" if at == 2 else "s"}
            for at, level in enumerate(levels) for n in range(5)
        ]  # fmt: skip
        cells = cell_values(make_attempts(rows))
        return (cells["latency_high_ns"] / cells["latency_low_ns"]).to_list()

    alone, beside = widths(1.0), widths(1.0, 2.0, 9.0)
    assert beside[0] != pytest.approx(alone[0])
    assert beside[:2] == pytest.approx(widths(1.0, 2.0, 3.0)[:2])
    assert widths(1.0, 20.0)[0] == pytest.approx(alone[0])


@pytest.mark.parametrize(("worst", "flags"), [(11.4, []), (11.6, ["repeats_disagree"])])
def test_repeats_disagree_beyond_15_percent_of_the_median(make_attempts, worst, flags) -> None:
    cell = one_cell(make_attempts, [10.0, 10.0, worst])
    assert cell["flags"] == flags
    assert cell["repeats_spread"] == pytest.approx((worst - 10) / 10)


def test_one_repeat_has_no_spread(make_attempts) -> None:
    cell = one_cell(make_attempts, [10.0])
    assert cell["repeats_spread"] is None
    assert cell["flags"] == []


def test_a_tool_without_latency_stays_null(make_attempts) -> None:
    cell = one_cell(make_attempts, [None, None])
    assert cell["latency_ns"] is None
    assert has(cell["interval_reason"], "0", "interval", "5")


def test_flags_of_all_repeats_are_joined(make_attempts) -> None:
    rows = [
        {"repeat": 0, "latency_p50_ns": 1.0, "flags": ["spread", "drift"]},
        {"repeat": 1, "latency_p50_ns": 1.0, "flags": ["spread"]},
    ]
    assert cell_values(make_attempts(rows))["flags"].to_list() == [["drift", "spread"]]


def test_missing_memory_stays_null_and_known_is_the_median(make_attempts) -> None:
    rows = [{"repeat": n, "peak_memory_bytes": value} for n, value in enumerate([5, None, 9])]
    assert cell_values(make_attempts(rows))["peak_memory_bytes"].to_list() == [7]
    assert cell_values(make_attempts([{}]))["peak_memory_bytes"].to_list() == [None]


def test_facts_that_differ_between_repeats_are_all_named(make_attempts) -> None:
    rows = [{"repeat": 0, "runtime_version": "2"}, {"repeat": 1, "runtime_version": "1"}]
    assert cell_values(make_attempts(rows))["runtime_version"].to_list() == ["1 | 2"]


def test_no_attempt_gives_an_empty_frame(make_attempts) -> None:
    cells = cell_values(make_attempts([{"status": "failed"}]))
    assert isinstance(cells, pl.DataFrame)
    assert cells.is_empty()


def test_repeats_of_unlike_statistics_have_no_latency_together(make_attempts) -> None:
    rows = [
        {"repeat": n, "latency_p50_ns": 10.0 + n, "statistic": "mean" if n == 2 else "median"}
        for n in range(6)
    ]
    (cell,) = cell_values(make_attempts(rows)).to_dicts()
    assert cell["statistic"] == "mean | median"
    figures = ("latency_ns", "latency_low_ns", "latency_high_ns", "repeats_spread")
    assert [cell[name] for name in figures] == [None] * 4
    assert has(cell["interval_reason"], "mean | median")
    assert cell["n_repeats"] == 6


def test_repeats_of_one_statistic_keep_it_and_an_unstated_one_is_no_other(make_attempts) -> None:
    rows = [
        {"repeat": n, "latency_p50_ns": 10.0 + n, "statistic": word}
        for n, word in enumerate(["minimum", None, "minimum"])
    ]
    (cell,) = cell_values(make_attempts(rows)).to_dicts()
    assert (cell["statistic"], cell["latency_ns"]) == ("minimum", 11.0)


def test_the_placement_of_a_cell_is_kept(make_attempts) -> None:
    (cell,) = cell_values(make_attempts([{"backend_nodes": 54, "graph_nodes": 65}, {"repeat": 1}]))[
        "backend_nodes", "graph_nodes"
    ].to_dicts()
    assert cell == {"backend_nodes": 54, "graph_nodes": 65}


def test_processes_of_no_time_have_no_spread(make_attempts) -> None:
    rows = make_attempts({"repeat": n, "latency_p50_ns": 0.0} for n in range(5))
    assert cell_values(rows)["repeats_spread"].to_list() == [None]


def test_only_a_model_without_any_cell_counts_as_dropped(make_attempts) -> None:
    failed = {"status": "failed", "latency_p50_ns": None}
    frame = make_attempts(
        [
            {"model": "a"}, {"model": "a", "device": "d2"} | failed,
            {"model": "b"} | failed, {"model": "b", "device": "d2"} | failed,
        ]
    )  # fmt: skip
    (note,) = notes_on_failures(frame, cell_values(frame))
    assert has(note, "3 cells", "1 model: b")
    (note,) = notes_on_failures(some := frame.filter(pl.col("model") == "a"), cell_values(some))
    assert has(note, "1 cell")
    assert "model" not in note


def test_cells_hold_the_cores_of_the_platform_not_of_the_mask(make_attempts) -> None:
    key = "box/onnx/cpu/eager/fp32/b1/t2/afirst_cores/{}"
    facts = {"model": "net", "device": "box", "platform_key": key, "cpu_choice": "first_cores"}
    rows = [
        {**facts, "repeat": number, "affinity": cpus, "latency_p50_ns": 1e6}
        for number, cpus in enumerate(("0,1", "2,3"))
    ]
    (cell,) = cell_values(make_attempts(rows)).rows(named=True)
    assert (cell["affinity"], cell["n_repeats"]) == ("first_cores", 2)
