"""The page about a workload with tokens, also in a browser."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fleet_rows import NETS, PLACES, write_results
from headless_browser import unfold
from language_rows import DECODERS, MACHINES, WORKLOADS, write_language_results

from fleetrank.analysis.figures import FAMILY_MARKS
from fleetrank.analysis.report.page import build_report
from fleetrank.analysis.stored.columns import FAMILIES
from fleetrank.analysis.stored.selection import Selection

if TYPE_CHECKING:
    from playwright import sync_api as playwright

pytestmark = pytest.mark.slow
FEW = {"decoders": DECODERS[:3], "machines": MACHINES[:2]}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokens")
    results = write_language_results(folder / "results")
    chosen = Selection(workload="decode@512")
    return build_report(results, folder / "report.html", selection=chosen).path


def data_of(page: Path) -> dict[str, object]:
    text = page.read_text()
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return json.loads(found)


@pytest.mark.thorough
def test_the_page_holds_the_cells_of_every_workload_and_names_them(built) -> None:
    tokens = data_of(built)["tokens"]
    assert tokens["workloads"] == list(WORKLOADS)
    assert tokens["slots"] == [128, 512, 128, 512]
    assert len(tokens["ms"]) == len(WORKLOADS) * len(DECODERS) * len(MACHINES)
    for ms, per_s, w in zip(tokens["ms"], tokens["per_s"], tokens["w"], strict=True):
        n = 1 if "decode" in WORKLOADS[w] else int(WORKLOADS[w].split("@")[1])
        assert per_s == pytest.approx(n / (ms / 1e3), rel=1e-3)
    assert "workload decode@512" in built.read_text()


def test_every_family_has_a_mark_of_its_own_kind_of_model() -> None:
    assert set(FAMILIES) <= set(FAMILY_MARKS)


@pytest.mark.thorough
def test_a_page_about_images_has_no_points_of_tokens(tmp_path) -> None:
    results = write_results(tmp_path / "results", nets=NETS[:4], places=PLACES[:2])
    write_language_results(results, **FEW)
    page = build_report(results, tmp_path / "report.html").path
    assert data_of(page)["tokens"] is None
    text = page.read_text()
    assert 'id="phases"' not in text
    assert "decode@512" in text


@pytest.mark.browser
@pytest.mark.thorough
def test_the_charts_are_drawn_and_follow_the_chosen_workloads(
    browser: "playwright.Browser", built
) -> None:
    page, errors = browser.new_page(), list[str]()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(built.as_uri())
    unfold(page)
    for name in ("phases", "rates", "contexts"):
        assert page.locator(f"#{name} figure svg").count() == len(MACHINES)
    axis = page.locator("#phases figure").first
    assert "decode@512" in axis.text_content()
    page.locator('#phases select[data-phase="y"]').select_option(label="decode@128")
    page.locator("#phases figure", has_text="decode@128").first.wait_for()
    assert page.locator('#rates select[data-phase="y"]').input_value() == str(
        WORKLOADS.index("decode@128")
    )
    assert errors == []


_BOXES = """names => [...document.querySelectorAll('#phases figure svg')].map(svg => {
  const box = e => {
    const b = e.getBoundingClientRect();
    return [b.left, b.top, b.right, b.bottom];
  };
  const own = [...svg.querySelectorAll('text')].filter(one => names.includes(one.textContent));
  return { frame: box(svg), names: own.map(box) };
})"""


@pytest.mark.browser
@pytest.mark.thorough
@pytest.mark.parametrize("width", [1280, 400])
def test_names_of_models_neither_overlap_nor_leave_their_chart(
    browser: "playwright.Browser", built: Path, width: int
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(built.as_uri())
    unfold(page)
    charts = page.evaluate(_BOXES, [one.name for one in DECODERS])
    assert len(charts) == len(MACHINES)
    for chart in charts:
        frame, boxes = chart["frame"], chart["names"]
        assert len(boxes) > len(DECODERS) // 2
        assert all(box[0] >= frame[0] and box[2] <= frame[2] for box in boxes)
        for number, one in enumerate(boxes):
            for other in boxes[:number]:
                is_beside = one[2] <= other[0] or other[2] <= one[0]
                # Letters are lower than their boxes.
                is_above = one[3] <= other[1] + 3 or other[3] <= one[1] + 3
                assert is_beside or is_above
