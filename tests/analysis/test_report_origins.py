"""The page says that figures are simulated or virtual, also in sections on other workloads."""

import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from fleet_rows import Place, write_results
from headless_browser import unfold
from language_rows import DECODERS, MACHINES, Machine, write_language_results
from stored_part import write_part
from wording import has

from fleetrank.analysis.report.evidence import Evidence, gather
from fleetrank.analysis.report.growth_points import curve_groups
from fleetrank.analysis.report.page import banner, build_report, other_workloads, render_page
from fleetrank.analysis.report.page_tables import PageTables, page_tables
from fleetrank.analysis.report.sections import Section, listed, page_sections
from fleetrank.analysis.stored.columns import ORIGINS
from fleetrank.analysis.stored.selection import Selection

if TYPE_CHECKING:
    from playwright import sync_api as playwright

pytestmark = pytest.mark.slow

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
PAGE = "prefill@128"
PROMPTS = (PAGE, "prefill@512", "prefill@2048")
SEGMENTS = ("segment@128+k8+n16", "segment@128+k8+n0")
SIMULATED = Machine(device="sim-reader", tier="cpu", gflops=30.0, gbytes_s=9.0, origin="simulated")
CHOSEN = Selection(workload=PAGE, origins=ORIGINS)
Made = tuple[Evidence, PageTables]


def _results(folder: Path, machines: Sequence[Machine]) -> Path:
    """The simulated device has no row of the page's workload."""
    results = write_language_results(
        folder, decoders=DECODERS[:2], machines=machines, workloads=[*PROMPTS, *SEGMENTS]
    )
    part = next((results / "measurements").rglob("*.parquet"))
    of_page = (pl.col("device") == SIMULATED.device) & (pl.col("workload") == PAGE)
    pl.read_parquet(part).filter(~of_page).pipe(write_part, part)
    return results


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _results(tmp_path_factory.mktemp("mixed"), [*MACHINES[:2], SIMULATED])


@pytest.fixture(scope="module")
def made(mixed: Path) -> Made:
    evidence = gather(mixed, CHOSEN)
    return evidence, page_tables(evidence)


def _banner(evidence: Evidence, tables: PageTables | None = None) -> str | None:
    text = render_page(evidence, NOW, tables)
    found = re.search(r'class="banner".*?</strong>(.*?)</div>', text, re.DOTALL)
    return None if found is None else found[1].strip()


@pytest.mark.thorough
def test_a_banner_names_the_sections_with_simulated_rows_of_other_workloads(made: Made) -> None:
    said = _banner(*made)
    assert said is not None
    assert "segment with memory" in said
    assert "grow" in said
    assert "simulated, those of sim-reader:" in said
    assert "Tokens per second" not in said


def test_one_sentence_has_the_values_of_the_page_and_those_of_sections() -> None:
    cells = pl.DataFrame({"device": ["a", "b"], "origin": ["measured", "virtual"]})
    drawn = pl.DataFrame({"device": ["b", "c"], "origin": ["virtual", "simulated"]})
    sections = [
        Section(id="x", title="Scaling", drawn=drawn),
        Section(id="y", title="Sustained", drawn=cells),
    ]
    said = str(banner(cells, sections))
    assert has(said, "1", "of", "2", "virtual", "b;", "section", "Scaling", "simulated", "c:")


@pytest.mark.thorough
def test_titles_of_panels_say_that_a_device_is_simulated(made: Made) -> None:
    evidence, tables = made
    titles = [str(one["title"]) for one in curve_groups(evidence, tables)]
    marked = {"(simulated)" in title for title in titles if "sim-reader" in title}
    assert marked == {True}
    assert not [title for title in titles if "xeon" in title and "simulated" in title]


@pytest.mark.browser
@pytest.mark.thorough
def test_the_axes_of_the_matrix_mark_platforms_that_are_not_real(
    browser: "playwright.Browser", tmp_path: Path
) -> None:
    places = [
        Place(device=name, tier="edge", runtime="onnx", gflops=9, origin=origin)
        for name, origin in (("board", "measured"), ("other", "measured"), ("phone", "virtual"))
    ]
    results = write_results(tmp_path / "r", places=places, repeats=1)
    for origins, marked in ((ORIGINS, {"phone"}), (("measured",), set[str]())):
        page = tmp_path / f"{len(origins)}.html"
        build_report(results, page, selection=Selection(origins=origins))
        view = browser.new_page(viewport={"width": 1280, "height": 900})
        view.goto(page.as_uri())
        unfold(view)
        matrix = view.locator("[data-charts=transfer]")
        names = set(matrix.locator("svg text").all_text_contents())
        assert {name.split()[0].rstrip("*") for name in names if name.endswith("*")} == marked
        assert ("* is" in matrix.locator("figcaption").first.inner_text()) == bool(marked)


def _texts(evidence: Evidence, tables: PageTables, name: str) -> set[str]:
    (table,) = listed(evidence, tables, name)
    return {cell.text for row in table.rows for cell in row.cells} | set(table.notes)


@pytest.mark.thorough
def test_what_the_page_has_no_room_for_is_in_neither(
    mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetrank.analysis.report.shown.MAX_MODELS", 1)
    results = shutil.copytree(mixed, tmp_path / "results")
    part = next((results / "measurements").rglob("*.parquet"))
    is_published = pl.col("model") == DECODERS[1].name  # no own model is left out
    origin = pl.when(is_published).then(pl.lit("imported")).otherwise("origin").alias("origin")
    pl.read_parquet(part).with_columns(origin).pipe(write_part, part)
    evidence = gather(results, CHOSEN)
    (kept,), tables = evidence.shown.models, page_tables(evidence)
    (left_out,) = {one.name for one in DECODERS[:2]} - {kept}
    (section,) = [one for one in page_sections(evidence, tables) if one.id == "reading"]
    models = {
        row.about["model"] for one in section.tables for row in one.rows if "model" in row.about
    }
    assert models == {kept}
    rows = [row for group in curve_groups(evidence, tables) for row in list(group["rows"])]  # type: ignore[call-overload]
    assert {row[0] for row in rows} == {0}
    assert left_out not in _texts(evidence, tables, "scaling")


@pytest.mark.thorough
def test_the_head_says_how_to_build_the_page_of_another_workload(mixed: Path, made: Made) -> None:
    said = other_workloads(made[0])
    assert "--workload prefill@512 --include-simulated`" in said
    assert all(name in said for name in (*PROMPTS, *SEGMENTS))
    of_real = other_workloads(gather(mixed, replace(CHOSEN, origins=("measured",))))
    assert "--workload prefill@512`" in of_real
