"""What the figures show: orders, labels, quantiles and fates, apart from how they are drawn."""

import itertools
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from fleet_rows import NETS, PLACES, Net, Place, write_results
from stored_part import write_part

from fleetrank.analysis.chart_points import (
    QUANTILES,
    frontier_pairs,
    process_medians,
    sample_quantiles,
    sampled_processes,
)
from fleetrank.analysis.figures import chosen_platforms, models_by_latency, platform_labels
from fleetrank.analysis.panel.agreement import Agreement
from fleetrank.analysis.report.page_data import flops_ranks, heat_columns, models_by_memory
from fleetrank.analysis.stored.cell_values import cell_values
from fleetrank.analysis.stored.load import load_measurements, valid_attempts
from fleetrank.analysis.stored.scope import select_cells
from fleetrank.analysis.stored.selection import Selection

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
    labels = list(platform_labels(cells).names.values())
    assert labels[0] == "rtx-4090, onnx"
    assert [label.split(", ")[0] for label in labels[::2]] == list(BY_TIER)


@pytest.mark.slow
def test_a_few_of_many_platforms_are_an_equal_share_of_each_tier(tmp_path: Path) -> None:
    places = [Place(device=f"phone-{n}", tier="edge", runtime="onnx", gflops=9) for n in range(20)]
    places += [Place(device=f"gpu-{n}", tier="gpu", runtime="onnx", gflops=900) for n in range(3)]
    chosen = chosen_platforms(_cells(tmp_path, list(NETS[:2]), places), 8)
    tiers = [key.split("-")[0] for key in chosen]
    assert (tiers.count("gpu"), tiers.count("phone")) == (3, 5)


def test_all_platforms_are_chosen_when_there_is_room(cells: pl.DataFrame) -> None:
    assert chosen_platforms(cells, 6) == platform_labels(cells).names


def test_a_model_missing_on_a_slow_platform_gains_no_rank(cells: pl.DataFrame) -> None:
    without = cells.filter((pl.col("model") != "resnet50") | (pl.col("tier") != "edge"))
    assert models_by_latency(without).index("resnet50") > models_by_latency(without).index(
        "mobilenet_v2"
    )


def test_the_processes_of_every_cell_are_kept(attempts: pl.LazyFrame, cells: pl.DataFrame) -> None:
    medians = process_medians(valid_attempts(attempts))
    assert medians.height == cells.height
    assert set(medians["medians_ns"].list.len()) == {5}


def test_of_many_processes_a_dozen_are_drawn_with_both_ends(tmp_path: Path) -> None:
    results = write_results(
        tmp_path / "r", nets=NETS[:1], places=PLACES[:1], repeats=40, n_samples=5
    )
    attempts = valid_attempts(load_measurements(results))
    drawn = process_medians(attempts)["medians_ns"][0].to_list()
    every = attempts.collect()["latency_p50_ns"]
    assert len(drawn) == 12
    assert (drawn[0], drawn[-1]) == (every.min(), every.max())


def _samples(results: Path) -> pl.DataFrame:
    scan = load_measurements(results)
    rows = sampled_processes(valid_attempts(scan))
    return sample_quantiles(scan, rows).sort("model", "platform_key")


def test_quantiles_are_those_of_the_raw_samples(tmp_path: Path) -> None:
    results = write_results(
        tmp_path / "r", nets=NETS[:2], places=PLACES[:1], repeats=1, n_samples=4001
    )
    stored = load_measurements(results).collect().sort("model")
    for found, samples in zip(_samples(results)["quantiles_ns"], stored["samples_ns"], strict=True):
        # Forty steps stand for the process: the middle is exact, the outermost two are not.
        expected = np.quantile(samples.to_numpy(), QUANTILES)
        assert found.to_numpy()[2:5] == pytest.approx(expected[2:5], rel=1e-3)
        assert found.to_numpy() == pytest.approx(expected, rel=0.01)


def test_a_long_process_counts_like_a_short_one(tmp_path: Path) -> None:
    results = write_results(
        tmp_path / "r", nets=NETS[:1], places=PLACES[:1], repeats=2, n_samples=50
    )
    part = next((results / "measurements").rglob("*.parquet"))
    frame = pl.read_parquet(part).filter(pl.col("status") == "ok")
    samples = pl.Series("samples_ns", [[100] * 1000, [200] * 10], dtype=pl.List(pl.Int64))
    frame.with_columns(samples).pipe(write_part, part)
    low, *_, high = _samples(results)["quantiles_ns"][0].to_list()
    assert (low, high) == (100, 200)
    assert _samples(results)["quantiles_ns"][0][3] == 150


def test_rows_without_samples_have_no_quantiles(tmp_path: Path) -> None:
    results = write_results(
        tmp_path / "r", nets=NETS[:2], places=PLACES[:1], repeats=2, n_samples=9
    )
    part = next((results / "measurements").rglob("*.parquet"))
    frame = pl.read_parquet(part)
    blank = pl.when(pl.col("model") != NETS[0].name).then("samples_ns").alias("samples_ns")
    frame.with_columns(blank).pipe(write_part, part)
    assert _samples(results)["model"].to_list() == [NETS[1].name]


def test_samples_of_a_dozen_processes_are_read_at_most(tmp_path: Path) -> None:
    results = write_results(
        tmp_path / "r", nets=NETS[:1], places=PLACES[:1], repeats=40, n_samples=5
    )
    assert sampled_processes(valid_attempts(load_measurements(results))).height == 12


def test_models_stand_in_the_order_of_their_memory(cells: pl.DataFrame) -> None:
    assert models_by_memory(cells)[-1] == "convnext_tiny"
    unknown = cells.with_columns(pl.lit(None, dtype=pl.Float64).alias("peak_memory_bytes"))
    assert models_by_memory(unknown) == []


def test_ranks_are_taken_inside_a_platform(cells: pl.DataFrame) -> None:
    one = cells.filter(pl.col("platform_key") == cells["platform_key"][0]).sort("flops")
    swapped = one.with_columns(pl.Series("latency_ns", [3.0, 1.0, 2.0, *range(4, len(one) + 1)]))
    ranks = flops_ranks(swapped).sort("flops_rank")
    assert ranks["latency_rank"].to_list() == [3.0, 1.0, 2.0, *range(4, len(one) + 1)]
    assert set(ranks["n_ranked"]) == {len(one)}


def test_a_platform_with_one_known_model_has_no_ranks(cells: pl.DataFrame) -> None:
    one = cells.with_columns(
        flops=pl.when(pl.col("model") == cells["model"][0]).then("flops")
    ).filter(pl.col("platform_key") == cells["platform_key"][0])
    assert flops_ranks(one).is_empty()


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
    source_key, target_key = platform_labels(cells).names
    pair = next(iter(frontier_pairs(cells, [source_key, target_key])))
    fates = {model: fate.name for model, fate in zip(pair.models, pair.fates, strict=True)}
    assert fates == {"a": "FALSE", "b": "HIT", "c": "HIT", "d": "MISS", "e": "NEITHER"}
    assert pair.overlap.precision == pytest.approx(2 / 3)
    assert pair.overlap.recall == pytest.approx(2 / 3)


def test_pairs_are_directed_and_only_of_the_platforms_asked_for(cells: pl.DataFrame) -> None:
    keys = list(platform_labels(cells).names)[:3]
    pairs = {(pair.source, pair.target) for pair in frontier_pairs(cells, keys)}
    assert pairs == set(itertools.permutations(keys, 2))


def test_models_without_accuracy_make_no_frontier(cells: pl.DataFrame) -> None:
    unknown = cells.with_columns(pl.lit(None, dtype=pl.Float64).alias("accuracy_top1"))
    assert list(frontier_pairs(unknown, list(platform_labels(cells).names))) == []


def test_four_models_in_common_make_no_frontier(cells: pl.DataFrame) -> None:
    few = cells.filter(pl.col("model").is_in([net.name for net in NETS[:4]]))
    assert list(frontier_pairs(few, list(platform_labels(cells).names))) == []


def test_the_matrix_keeps_why_a_value_is_missing_and_only_known_platforms() -> None:
    why = "4 models in common, at least 5 needed"

    def pair(target: str, measure: str) -> Agreement:
        return Agreement(measure=measure, source="a", target=target, n_models=4, reason=why)

    pairs = [pair("b", "latency"), pair("elsewhere", "latency"), pair("b", "frm")]
    columns = heat_columns(pairs, "latency", {"a": 0, "b": 1})
    assert (columns["source"], columns["target"], columns["rho"]) == ([0], [1], [None])
    assert (columns["n_models"], columns["reason"]) == ([4], [why])


def test_a_model_has_one_accuracy_on_all_platforms(attempts: pl.LazyFrame) -> None:
    rows = attempts.collect()
    first = rows["platform_key"][0]
    other = pl.when(pl.col("platform_key") == first).then(pl.col("accuracy_top1") + 7)
    mixed = rows.with_columns(other.otherwise("accuracy_top1").alias("accuracy_top1"))
    usual, lowest = (select_cells(one.lazy(), Selection()) for one in (rows, mixed))
    assert lowest.cells["accuracy_top1"].to_list() == usual.cells["accuracy_top1"].to_list()
    assert any("different accuracies" in note for note in lowest.notes)
    assert not any("different accuracies" in note for note in usual.notes)


def test_other_weights_keep_their_own_accuracy(attempts: pl.LazyFrame) -> None:
    rows = attempts.collect()
    is_first = pl.col("platform_key") == rows["platform_key"][0]
    retrained = rows.with_columns(
        pl.when(is_first).then(pl.lit("other")).otherwise("weights_id").alias("weights_id"),
        (pl.col("accuracy_top1") + pl.when(is_first).then(7).otherwise(0)).alias("accuracy_top1"),
    )
    usual, own = (select_cells(one.lazy(), Selection()) for one in (rows, retrained))
    both = usual.cells.join(own.cells, on=["cell_key", "platform_key", "model"], suffix="_own")
    gained = both.filter(is_first).select(pl.col("accuracy_top1_own") - pl.col("accuracy_top1"))
    assert gained.drop_nulls().to_series().round(6).unique().to_list() == [7.0]
