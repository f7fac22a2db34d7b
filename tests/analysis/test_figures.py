"""What the figures show: orders, labels, fates and limits, apart from how they are drawn."""

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from fleet_rows import NETS, PLACES, Net, Place, write_results

from analysis.cells_table import cell_values
from analysis.figures.flops_rank import draw_flops_rank, flops_rank_points
from analysis.figures.frontier import draw_frontier, frontier_points
from analysis.figures.heat_map import draw_heat_map, heat_points
from analysis.figures.labels import chosen_platforms, models_by_latency, platform_labels
from analysis.figures.latency import draw_latency, latency_points, process_medians
from analysis.figures.memory import draw_memory, memory_points
from analysis.figures.theme import log_ticks
from analysis.load import load_measurements, valid_attempts

BY_TIER = {"rtx-4090": "gpu", "cpu-3fa2c1": "cpu", "pixel-7": "edge"}


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> pl.LazyFrame:
    return load_measurements(write_results(tmp_path_factory.mktemp("figures") / "results"))


@pytest.fixture(scope="module")
def cells(attempts: pl.LazyFrame) -> pl.DataFrame:
    return cell_values(attempts)


def _cells(folder: Path, nets: list[Net], places: list[Place], repeats: int = 5) -> pl.DataFrame:
    results = write_results(folder / "r", nets=nets, places=places, repeats=repeats, n_samples=5)
    return cell_values(load_measurements(results))


def test_labels_hold_what_differs_and_go_from_gpu_to_edge(cells: pl.DataFrame) -> None:
    labels = list(platform_labels(cells).values())
    assert labels[0] == "rtx-4090 · onnx"
    assert [label.split(" · ")[0] for label in labels[::2]] == list(BY_TIER)


def test_one_device_is_named_by_runtime_and_threads(tmp_path: Path) -> None:
    places = [replace(PLACES[0], threads=threads) for threads in (1, 2)]
    labels = platform_labels(_cells(tmp_path, list(NETS[:2]), places))
    assert list(labels.values()) == ["onnx · 1 thread", "onnx · 2 threads"]


def test_cores_are_named_only_where_the_threads_do_not_tell_them(tmp_path: Path) -> None:
    places = [replace(PLACES[0], threads=threads) for threads in (1, 2)]
    cells = _cells(tmp_path, list(NETS[:2]), places)
    told = cells.with_columns(
        affinity=pl.when(pl.col("threads") == 1).then(pl.lit("0")).otherwise(pl.lit("0,1"))
    )
    assert list(platform_labels(told).values()) == ["onnx · 1 thread", "onnx · 2 threads"]
    other = told.with_columns(
        affinity=pl.lit("1"), platform_key=pl.concat_str("platform_key", pl.lit("/other"))
    )
    labels = platform_labels(pl.concat([told, other])).values()
    assert "onnx · 1 thread · CPUs 0" in labels


def test_a_few_of_many_platforms_are_an_equal_share_of_each_tier(tmp_path: Path) -> None:
    places = [Place(device=f"phone-{n}", tier="edge", runtime="onnx", gflops=9) for n in range(20)]
    places += [Place(device=f"gpu-{n}", tier="gpu", runtime="onnx", gflops=900) for n in range(3)]
    chosen = chosen_platforms(_cells(tmp_path, list(NETS[:2]), places), 8)
    tiers = [key.split("-")[0] for key in chosen]
    assert (tiers.count("gpu"), tiers.count("phone")) == (3, 5)


def test_all_platforms_are_chosen_when_there_is_room(cells: pl.DataFrame) -> None:
    assert chosen_platforms(cells, 6) == platform_labels(cells)


def test_a_model_missing_on_a_slow_platform_gains_no_rank(cells: pl.DataFrame) -> None:
    without = cells.filter((pl.col("model") != "resnet50") | (pl.col("tier") != "edge"))
    assert models_by_latency(without).index("resnet50") > models_by_latency(without).index(
        "mobilenet_v2"
    )


def test_latency_panels_share_rows_and_scale_and_hold_every_process(
    attempts: pl.LazyFrame, cells: pl.DataFrame
) -> None:
    panels = latency_points(cells, process_medians(valid_attempts(attempts)), max_panels=9)
    assert len(panels) == 6
    assert len({panel.models for panel in panels}) == 1
    assert len({panel.domain_ms for panel in panels}) == 1
    for panel in panels:
        low, high = panel.domain_ms
        assert all(low < float(str(point["ms"])) < high for point in panel.processes)
    assert len(panels[0].processes) == len(NETS) * 5


def test_two_repeats_have_points_and_no_interval(tmp_path: Path) -> None:
    results = write_results(tmp_path / "r", repeats=2, n_samples=5)
    rows = load_measurements(results)
    panels = latency_points(cell_values(rows), process_medians(valid_attempts(rows)), max_panels=1)
    point = panels[0].cells[0]
    assert point["low_ms"] is None
    assert point["interval"] == "none below 5 repeats"
    assert len(panels[0].processes) == 2 * len(NETS)


def test_of_many_processes_a_dozen_are_drawn_with_both_ends(tmp_path: Path) -> None:
    results = write_results(
        tmp_path / "r", nets=NETS[:1], places=PLACES[:1], repeats=40, n_samples=5
    )
    attempts = valid_attempts(load_measurements(results))
    drawn = process_medians(attempts)["medians_ns"][0].to_list()
    every = attempts.collect()["latency_p50_ns"]
    assert len(drawn) == 12
    assert (drawn[0], drawn[-1]) == (every.min(), every.max())


def test_memory_panels_name_their_metric(cells: pl.DataFrame) -> None:
    panels = memory_points(cells, max_panels=2)
    assert [panel.metric for panel in panels] == ["vmhwm_growth"] * 2
    assert panels[0].models[-1] == "convnext_tiny"


def test_unknown_memory_has_no_panel(cells: pl.DataFrame) -> None:
    unknown = cells.with_columns(pl.lit(None, dtype=pl.Float64).alias("peak_memory_bytes"))
    assert memory_points(unknown, max_panels=9) == []


def test_flops_ranks_count_models_two_places_off(cells: pl.DataFrame) -> None:
    one = cells.filter(pl.col("platform_key") == cells["platform_key"][0]).sort("flops")
    swapped = one.with_columns(pl.Series("latency_ns", [3.0, 1.0, 2.0, *range(4, len(one) + 1)]))
    panel = flops_rank_points(swapped, max_panels=1)[0]
    assert panel.n_shifted == 1
    first = next(point for point in panel.points if point["flops_rank"] == 1.0)
    assert first["verdict"] == "2 places slower than FLOPs say"


def test_fates_are_of_the_target_s_frontier(tmp_path: Path) -> None:
    nets = [
        Net(name=name, family="hybrid", mflops=1, parameters=1e6, accuracy=accuracy, overhead=1)
        for name, accuracy in (("a", 60.0), ("b", 70.0), ("c", 80.0), ("d", 50.0), ("e", 65.0))
    ]
    places = [
        Place(device=device, tier=tier, runtime="onnx", gflops=1)
        for device, tier in (("gpu", "gpu"), ("phone", "edge"))
    ]
    source = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0, "e": 5.0}
    target = {"a": 2.0, "b": 1.0, "c": 3.0, "d": 0.5, "e": 5.0}
    cells = _cells(tmp_path, nets, places).with_columns(
        pl.when(pl.col("device") == "gpu")
        .then(pl.col("model").replace_strict(source))
        .otherwise(pl.col("model").replace_strict(target))
        .alias("latency_ns")
    )
    panel = frontier_points(cells, max_panels=4)[0]
    fates = {str(point["model"]): point["fate"] for point in panel.points}
    assert fates == {
        "a": "false alarm", "b": "hit", "c": "hit", "d": "miss", "e": "on neither",
    }  # fmt: skip
    assert panel.overlap.precision == pytest.approx(2 / 3)
    assert panel.overlap.recall == pytest.approx(2 / 3)


def test_pairs_of_two_devices_come_before_pairs_on_one(cells: pl.DataFrame) -> None:
    panels = frontier_points(cells, max_panels=15)
    is_same = [
        panel.source_label.split(" · ")[0] == panel.target_label.split(" · ")[0] for panel in panels
    ]
    assert len(panels) == 15
    assert is_same == sorted(is_same)


def test_models_without_accuracy_make_no_frontier(cells: pl.DataFrame) -> None:
    unknown = cells.with_columns(pl.lit(None, dtype=pl.Float64).alias("accuracy_top1"))
    assert frontier_points(unknown, max_panels=9) == []


def test_heat_map_shows_both_halves_and_why_a_value_is_missing() -> None:
    row = {
        "source": "a", "target": "b", "rho": None, "low": None, "high": None, "null_mean": None,
        "null_p95": None, "n_models": 4, "reason": "4 models in common, at least 5 needed",
    }  # fmt: skip
    points = heat_points(pl.DataFrame([row]), {"a": "A", "b": "B"})
    assert [(point["source"], point["target"]) for point in points] == [("A", "B"), ("B", "A")]
    assert points[0]["shown"] == "?"
    assert points[0]["interval"] == "4 models in common, at least 5 needed"


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.5, 2000.0, [1, 10, 100, 1000]),
        (4.0, 150.0, [10, 30, 100]),
        (9.0, 60.0, [10, 20, 50]),
    ],
)
def test_log_ticks_are_round_and_inside(low: float, high: float, ticks: list[float]) -> None:
    assert log_ticks(low, high) == pytest.approx(ticks)


def test_every_drawing_is_json_that_loads_nothing(
    attempts: pl.LazyFrame, cells: pl.DataFrame
) -> None:
    names = platform_labels(cells)
    specs = [
        draw_latency(
            latency_points(cells, process_medians(valid_attempts(attempts)), max_panels=1)[0]
        ),
        draw_memory(memory_points(cells, max_panels=1)[0]),
        draw_flops_rank(flops_rank_points(cells, max_panels=1)[0]),
        draw_frontier(frontier_points(cells, max_panels=1)[0]),
        draw_heat_map([], list(names.values())),
    ]
    for spec in specs:
        text = json.dumps(spec, allow_nan=False)
        assert '"url"' not in text
        assert spec["width"] == "container"
