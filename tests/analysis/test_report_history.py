"""The page's section on sweeps: only with two sweeps of a platform, with the steps marked."""

import json
import re
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest
from fleet_rows import NETS, PLACES, part_in, store_rows, write_results

from fleetrank.analysis.report.page import build_report

pytestmark = pytest.mark.slow

N_SWEEPS, AT = 8, 4


@pytest.fixture(scope="module")
def one_sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("history") / "results"
    return write_results(folder, nets=NETS[:4], places=PLACES[:1], repeats=2, n_samples=4)


def test_a_step_of_one_model_is_marked_where_it_begins(one_sweep: Path, tmp_path: Path) -> None:
    rows = pl.read_parquet(part_in(one_sweep)).to_dicts()
    results = tmp_path / "results"
    for number in range(N_SWEEPS):
        later = [
            row | {
                "sweep_id": f"daily-{number}",
                "started_utc": row["started_utc"] + timedelta(days=number),
                "latency_p50_ns": row["latency_p50_ns"] and row["latency_p50_ns"] * (
                    1.4 if row["model"] == NETS[0].name and number >= AT else 1.0
                ),
            }
            for row in rows
        ]  # fmt: skip
        store_rows(results, later, f"daily-{number}")
    data = page_data(results, tmp_path)
    ((one,),) = [data["history"]]
    marked = [(name, moved) for name, _, _, moved in one["points"] if moved]
    assert marked == [([model["name"] for model in data["models"]].index(NETS[0].name), "model")]
    of_host = [ratio for name, _, ratio, _ in one["points"] if name == "host"]
    assert of_host == pytest.approx([1.0] * N_SWEEPS, abs=1e-3)


def test_one_sweep_has_no_history(one_sweep: Path, tmp_path: Path) -> None:
    assert page_data(one_sweep, tmp_path)["history"] == []
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert 'id="history"' not in html
    assert 'id="claims"' not in html, "four models tell of no claim"


def page_data(results: Path, folder: Path):
    build_report(results, folder / "page.html")
    text = (folder / "page.html").read_text(encoding="utf-8")
    (found,) = re.findall(r'<script[^>]*id="data"[^>]*>(.*?)</script>', text, re.DOTALL)
    return json.loads(found)
