"""The page as text: what stands on it, in which order, and that names stay names."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from fleet_rows import HOSTILE_DEVICE, HOSTILE_MODEL, NETS, PLACES, SWEEP, Place, write_results
from stored_part import write_part

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.report import evidence
from fleetrank.analysis.report.evidence import gather
from fleetrank.analysis.report.page import (
    ReportFacts,
    build_report,
    json_block,
    own_script,
    render_page,
)
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import make_table
from fleetrank.foundation.files import StorageError

pytestmark = pytest.mark.slow

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
MAX_BYTES = 5_000_000
FEW: dict[str, Any] = {"nets": NETS[:5], "places": PLACES[:3], "n_samples": 5}


class Page(HTMLParser):
    """What a browser would make of the page, as far as these tests ask."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.text += data

    def ids(self, tag: str) -> list[str | None]:
        return [attrs["id"] for name, attrs in self.tags if name == tag and "id" in attrs]

    def data(self) -> dict[str, Any]:
        """What the page's script draws and filters."""
        return json.loads(self.scripts[0])  # type: ignore[no-any-return]


def _page(results: Path, **selection: object) -> Page:
    return Page(render_page(gather(results, Selection(**selection)), NOW))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> ReportFacts:
    folder = tmp_path_factory.mktemp("page")
    return build_report(write_results(folder / "results"), folder / "deep" / "report.html")


@pytest.fixture(scope="module")
def page(built: ReportFacts) -> Page:
    return Page(built.path.read_text("utf-8"))


def test_the_answer_comes_first_and_what_is_left_is_folded(page: Page) -> None:
    assert page.ids("section") == ["answer", "matrix", "swaps", "trust"]
    assert page.ids("details") == [
        "latency", "transfer", "frontier", "flops", "claims", "memory", "lab", "dropped",
        "provenance", "words",
    ]  # fmt: skip


def test_the_page_begins_with_a_pair_whose_order_changes(tmp_path: Path) -> None:
    folder = write_results(tmp_path / "r", nets=NETS[:2], n_samples=5)
    part = next((folder / "measurements").rglob("*.parquet"))
    is_slow = (pl.col("model") == "resnet18") & (pl.col("tier") != "cpu")
    slower = pl.col("latency_p50_ns") * pl.when(is_slow).then(20).otherwise(1)
    pl.read_parquet(part).with_columns(slower).pipe(write_part, part)
    page = _page(folder, source="cpu-*")
    assert len(page.data()["fleet"]["main"]["rows"]) == len(PLACES)
    assert re.search(r"resnet18 is [\d.]+ times as fast as resnet50 here", page.text)
    assert re.search(r"(No|Mostly not): .* slower on [1-9] of [1-9] other devices", page.text)


@pytest.mark.thorough
def test_imported_figures_without_samples_are_said_to_have_none(tmp_path: Path) -> None:
    folder = write_results(tmp_path / "r", **FEW)
    part = next((folder / "measurements").rglob("*.parquet"))
    frame = pl.read_parquet(part)
    frame.with_columns(pl.lit(None, dtype=frame["samples_ns"].dtype).alias("samples_ns")).pipe(write_part, part)  # fmt: skip # noqa: E501
    page = _page(folder)
    assert "15 of 15 values have no raw samples" in page.text
    assert set(map(str, page.data()["cells"]["quantiles_ms"])) == {"None"}


def test_nothing_is_fetched(page: Page) -> None:
    loading = [(tag, attrs) for tag, attrs in page.tags if {"src", "srcset"} & set(attrs)]
    assert loading == []
    assert [tag for tag, _ in page.tags if tag in {"link", "iframe", "object", "img"}] == []
    assert all(
        str(attrs["href"]).startswith("#") for tag, attrs in page.tags if tag == "a"
    )  # fmt: skip


def test_scripts_of_the_charts_are_embedded_once(page: Page) -> None:
    assert sum("vegaEmbed" in script and len(script) > 100_000 for script in page.scripts) == 1
    policy = next(
        str(attrs["content"])
        for tag, attrs in page.tags
        if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy


def test_every_table_has_a_caption_and_heads_with_a_scope(page: Page) -> None:
    names = [tag for tag, _ in page.tags]
    assert names.count("caption") == names.count("table") > 15
    assert all(attrs.get("scope") in {"col", "row"} for tag, attrs in page.tags if tag == "th")


def test_the_data_hold_every_value_once_as_columns(page: Page) -> None:
    data = page.data()
    cells = data["cells"]
    assert {len(column) for column in cells.values()} == {6 * 13}
    assert set(zip(cells["p"], cells["m"], strict=True)) == {
        (p, m) for p in range(6) for m in range(13)
    }
    assert all(len(quantiles) == len(data["quantiles"]) for quantiles in cells["quantiles_ms"])
    assert all(quantiles == sorted(quantiles) for quantiles in cells["quantiles_ms"])


def test_pairs_hold_interval_and_null_and_frontiers_a_fate_for_each_model(page: Page) -> None:
    data = page.data()
    assert len(data["pairs"]["frm"]["rho"]) == 15
    assert None not in data["pairs"]["latency"]["low"] + data["pairs"]["frm"]["null_mean"]
    assert len(data["frontiers"]) == 30
    for pair in data["frontiers"]:
        assert len(pair["models"]) == len(pair["fates"]) == pair["n"] == 13


def test_raw_samples_stay_out(page: Page) -> None:
    assert "samples_ns" not in page.scripts[0]
    assert len(page.scripts[0]) < 300_000


@pytest.mark.thorough
def test_the_answer_is_over_all_platforms_though_only_some_are_drawn(tmp_path: Path) -> None:
    places = tuple(
        Place(device=f"d{n}", tier=("cpu", "edge")[n % 2], runtime="onnx", gflops=10.0 + 9 * n)
        for n in range(70)
    )
    results = write_results(tmp_path / "results", places=places)
    whole = make_table("transfer", load_measurements(results), Selection()).frame
    (edge,) = whole.filter(
        (pl.col("measure") == "latency")
        & (pl.col("source") == "cpu")
        & (pl.col("target") == "edge")
    ).iter_rows(named=True)
    page = _page(results)
    assert f"{edge['n_pairs']:,}" in page.text
    assert edge["n_pairs"] == 35 * 35
    assert any(page.data()["pairs"]["latency"].values()), "pairs of some are drawn all the same"


def test_what_was_dropped_skipped_and_run_is_said(page: Page) -> None:
    assert "no result within 120 s" in page.text
    assert "an ONNX file runs in onnx only" in page.text
    assert "fleetrank sweep run sweeps/paper13.yaml" in page.text
    assert "0123456789ab" in page.text
    assert "onnxruntime" in page.text
    assert SWEEP in page.text


TURNED = "a\u202eb\u2066c\x1b\u200bd"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Markup, and characters that turn text around, in names of models and of a device."""
    nets = [*NETS[:5], *(replace(NETS[0], name=name) for name in (HOSTILE_MODEL, TURNED))]
    places = [*PLACES[:2], replace(PLACES[2], device=HOSTILE_DEVICE)]
    folder = tmp_path_factory.mktemp("hostile") / "r"
    results = write_results(folder, nets=nets, places=places, n_samples=5)
    return render_page(gather(results, Selection()), NOW)


def test_hostile_names_are_text_in_html_and_in_specifications(hostile: str) -> None:
    html, page = hostile, Page(hostile)
    assert HOSTILE_MODEL in page.text
    assert HOSTILE_DEVICE in page.text
    assert not [tag for tag, _ in page.tags if tag == "img"]
    assert "<script>alert" not in html
    assert html.count("</script>") == len(page.scripts)
    assert HOSTILE_MODEL in [model["name"] for model in page.data()["models"]]


def test_characters_that_turn_text_around_are_shown_escaped_everywhere(hostile: str) -> None:
    html = hostile
    assert not re.findall("[\x1b\u200b\u202a-\u202e\u2066-\u2069]", Page(html).text)
    shown = r"a\u202eb\u2066c\u001b\u200bd"
    assert shown in Page(html).text
    # The same in the data, whose names scripts compare with those in the page.
    assert shown in [model["name"] for model in Page(html).data()["models"]]


def test_one_repeat_of_one_model_on_one_platform_still_makes_a_page(tmp_path: Path) -> None:
    page = _page(write_results(tmp_path / "r", nets=NETS[:1], places=PLACES[:1], repeats=1))
    assert "No two models are clearly apart here" in page.text
    assert "1 repeat carries no interval" in page.text
    assert page.ids("section") == ["answer", "matrix", "trust"]


def test_only_simulated_rows_are_no_result_unless_asked(tmp_path: Path) -> None:
    place = Place(device="sim", tier="edge", runtime="onnx", gflops=9, origin="simulated")
    folder = write_results(tmp_path / "r", places=[place], n_samples=5)
    with pytest.raises(NoDataError):
        build_report(folder, tmp_path / "x.html")
    assert not (tmp_path / "x.html").exists()
    asked = _page(folder, origins=("simulated",))
    assert "Not measured on real devices" in asked.text
    assert "13 of 13 values are simulated" in asked.text


def test_a_large_fleet_is_compared_and_drawn_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "_MAX_COMPARED", 4)
    monkeypatch.setattr(evidence, "_MAX_PAIRED", 3)
    page = _page(write_results(tmp_path / "r", nets=NETS[:5], repeats=1, n_samples=2))
    assert len(page.data()["platforms"]) == len(PLACES) == 6
    assert "compared for 4 of 6 platforms" in page.text
    assert "drawn for 3 of those" in page.text


def test_missing_accuracy_memory_and_record_leave_a_page(tmp_path: Path) -> None:
    folder = write_results(tmp_path / "r", **FEW)
    part = next((folder / "measurements").rglob("*.parquet"))
    frame = pl.read_parquet(part)
    blank = ("accuracy_top1", "peak_memory_bytes", "load_peak_memory_bytes", "flops", "started_utc")
    frame.with_columns(pl.lit(None, dtype=frame[name].dtype).alias(name) for name in blank).pipe(write_part, part)  # fmt: skip # noqa: E501
    (folder / "sweeps" / f"{SWEEP}.json").write_text("[1")
    page = _page(folder)
    assert not {"memory", "frontier", "flops"} & set(page.ids("details"))
    assert "time not recorded" in page.text


def test_build_writes_one_small_file_and_says_what_it_holds(built: ReportFacts) -> None:
    assert [path.name for path in built.path.parent.iterdir()] == ["report.html"]
    assert built.size_bytes == built.path.stat().st_size < MAX_BYTES
    assert (built.n_models, built.n_platforms) == (13, 6)


def test_a_page_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    fleet = write_results(tmp_path / "r", nets=NETS[:1], places=PLACES[:1], repeats=1)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written") as raised:
        build_report(fleet, tmp_path / "file" / "report.html")
    assert "its folder exists" in raised.value.remedy


def test_json_cannot_end_its_block() -> None:
    value = {"a": "</script><!-- & -->"}
    block = str(json_block(value))
    assert not set("<>&") & set(block)
    assert json.loads(block) == value


def test_a_script_that_would_end_its_own_block_is_refused() -> None:
    with pytest.raises(ValueError, match="ends its own block"):
        own_script("let a = '</SCRIPT>'")
