"""The question about two models and the swaps between two platforms, as the page answers them."""

from pathlib import Path

import polars as pl
import pytest
from fleet_rows import NETS, write_results
from stored_part import write_part

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.report.pair_view import fleet_data
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.selection import Selection

A, B = "mobilenet_v2", "squeezenet1_1"


def _session(results: Path) -> Session:
    return Session(load_measurements(results), Selection(source="cpu-*"))


@pytest.mark.slow
def test_a_figure_that_is_unlike_the_others_is_shown_and_says_why(tmp_path: Path) -> None:
    folder = write_results(tmp_path / "r", nets=NETS, n_samples=5)
    part = next((folder / "measurements").rglob("*.parquet"))
    is_wrong = (
        (pl.col("model") == A) & (pl.col("device") == "pixel-7") & (pl.col("runtime") == "onnx")
    )
    wrong = pl.col("latency_p50_ns") * pl.when(is_wrong).then(40).otherwise(1)
    pl.read_parquet(part).with_columns(wrong).pipe(write_part, part)
    fleet = fleet_data(_session(folder))
    model = fleet["models"].index(A)  # type: ignore[attr-defined]
    ((platform, said),) = [one[1:] for one in fleet["unlike"] if one[0] == model]  # type: ignore[attr-defined]
    assert fleet["platforms"][platform]["label"] == "pixel-7, onnx"  # type: ignore[index]
    assert fleet["ms"][platform][model] > 0  # type: ignore[index]
    assert not fleet["doubts"]
    assert "times" in said


def test_a_page_of_one_runtime_asks_about_its_own_platforms(make_attempts) -> None:
    """Another runtime measured more models, and would else be where the question is asked."""
    places = (("d0", "torch", 8), ("d1", "onnx", 6), ("d2", "onnx", 6))
    rows = [
        {"model": f"m{at}", "platform_key": f"{device}/{runtime}/cpu/eager/fp32/b1/t1/afree/{{}}",
         "device": device, "runtime": runtime, "latency_p50_ns": 1e6 * (1 + at * (n + 1) % 7)}
        for n, (device, runtime, n_models) in enumerate(places)
        for at in range(n_models)
    ]  # fmt: skip
    fleet = fleet_data(Session(make_attempts(rows), Selection(runtime="onnx")))
    assert [one["label"] for one in fleet["platforms"]] == ["d1", "d2"]  # type: ignore[attr-defined]
    assert len(fleet["main"]["rows"]) == 2  # type: ignore[index, arg-type]
