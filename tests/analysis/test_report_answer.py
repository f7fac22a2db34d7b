"""The question about two models and the swaps between two platforms, as the page answers them."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from fleet_rows import NETS, write_results
from stored_part import write_part

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.report.page import build_report
from fleetrank.analysis.report.pair_view import fleet_data
from fleetrank.analysis.statistics.pair_answer import pair_sentences
from fleetrank.analysis.statistics.pairs import faster
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.selection import Selection

if TYPE_CHECKING:
    from playwright import sync_api as playwright

A, B = "mobilenet_v2", "squeezenet1_1"


def _session(results: Path) -> Session:
    return Session(load_measurements(results), Selection(source="cpu-*"))


@pytest.mark.slow
def test_a_doubtful_figure_is_no_latency_and_says_why(tmp_path: Path) -> None:
    folder = write_results(tmp_path / "r", nets=NETS, n_samples=5)
    part = next((folder / "measurements").rglob("*.parquet"))
    is_wrong = (
        (pl.col("model") == A) & (pl.col("device") == "pixel-7") & (pl.col("runtime") == "onnx")
    )
    wrong = pl.col("latency_p50_ns") * pl.when(is_wrong).then(40).otherwise(1)
    pl.read_parquet(part).with_columns(wrong).pipe(write_part, part)
    fleet = fleet_data(_session(folder))
    model = fleet["models"].index(A)  # type: ignore[attr-defined]
    ((platform, said),) = [one[1:] for one in fleet["doubts"] if one[0] == model]  # type: ignore[attr-defined]
    assert fleet["platforms"][platform]["label"] == "pixel-7, onnx"  # type: ignore[index]
    assert fleet["ms"][platform][model] is None  # type: ignore[index]
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


def _pick(page: "playwright.Page", label: str, name: str) -> None:
    page.locator(".question").get_by_label(label, exact=True).select_option(label=name)


@pytest.mark.browser
def test_a_picked_pair_has_the_answer_of_the_analysis(
    browser: "playwright.Browser", tmp_path: Path
) -> None:
    results = write_results(tmp_path / "r", n_samples=5)
    part = next((results / "measurements").rglob("*.parquet"))
    is_here = pl.col("device").str.starts_with("cpu-")
    chosen = pl.read_parquet(part).filter(is_here == (pl.col("runtime") == "onnx"))
    write_part(chosen, part)
    answer = faster(_session(results), A, B)
    page = browser.new_page()
    page.goto(build_report(results, tmp_path / "report.html").path.as_uri())
    _pick(page, "Model A", answer.here.model_a)
    _pick(page, "Model B", answer.here.model_b)
    _pick(page, "Here", answer.here.label)
    rows = [row.all_inner_texts() for row in _cells(page)]
    verdict = page.locator("#verdict").inner_text()
    _pick(page, "Model B", answer.here.model_a)
    assert page.locator("#verdict").inner_text() == "Pick two models."
    _pick(page, "Source", answer.here.label)
    swaps = page.locator("#swaps-table tr.reversed").count()
    said = page.locator("#swaps-table [role=status]").inner_text()
    shown = {row[0]: (row[1], row[2]) for row in rows}
    for one in (answer.here, *answer.targets):
        text, order = shown[one.label.replace(", ", " ", 1)]
        assert order == one.order
        assert re.findall(r"[\d.]+", text) == [f"{v:.2f}" for v in (one.ratio, one.low, one.high)]
    assert answer.here.model_a in verdict
    # The page says what `faster` does, with the conditions of the others.
    assert verdict == pair_sentences(answer)[0]
    assert swaps > 1
    assert re.search(r"Of \d+ pairs of models: .* \d+ reversed", said)


def _cells(page: "playwright.Page") -> "list[playwright.Locator]":
    """Device, ratio and order of each platform."""
    rows = page.locator(".orders tbody tr")
    return [row.locator("th, td:nth-child(n+3)") for row in rows.all()]
