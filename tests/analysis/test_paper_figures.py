"""Figures of a paper: their points are those of the tables, and they are drawn in two widths."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from context_rows import write_contexts
from daily import daily
from fleet_rows import HOSTILE_DEVICE, HOSTILE_MODEL, hostile_results, write_results

from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.report import charts
from fleetrank.analysis.report.charts import TWO_COLUMNS_PX, PaperFigure, filled, script_bundle
from fleetrank.analysis.report.paper_figures import FIGURES, make_figure
from fleetrank.analysis.report.paper_files import INDEX, export_figures
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import session_table

OF_IMAGES = [name for name in FIGURES if name != "contexts"]


def _session(results: Path, **selected: object) -> Session:
    selection = Selection(**selected)  # type: ignore[arg-type]
    return Session(load_measurements(results), selection, results=results)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    return _session(write_results(tmp_path_factory.mktemp("figures") / "r", n_samples=3))


@pytest.mark.parametrize("name", OF_IMAGES)
def test_a_figure_has_its_points_and_a_caption_with_n(session: Session, name: str) -> None:
    for width in (charts.ONE_COLUMN_PX, TWO_COLUMNS_PX):
        figure = make_figure(name, session, width)
        assert figure.spec["width"] == width
        assert figure.data.height > 0
        assert "13 models" in figure.caption
        assert "interval" in figure.caption.lower()
        assert '"$":' not in json.dumps(figure.spec)


def test_rho_of_the_matrix_is_that_of_the_table(session: Session) -> None:
    drawn = make_figure("transfer", session).data
    table = session_table("transfer", session).frame
    both = drawn.join(table, on=["measure", "source", "target"], suffix="_table")
    assert both.height == drawn.height == 15
    assert (both["rho"] - both["rho_table"]).abs().max() == 0


def test_source_and_target_choose_the_platforms(session: Session) -> None:
    ends = {"source": "pixel-7, onnx", "target": "rtx-4090, onnx"}
    chosen = session.asked(replace(session.selection, **ends))  # type: ignore[arg-type]
    figure = make_figure("frontier", chosen)
    keys = figure.data.select("source", "target").unique().row(0)
    assert [key.split("/")[:2] for key in keys] == [["pixel-7", "onnx"], ["rtx-4090", "onnx"]]
    assert "rtx-4090" in make_figure("slopes", chosen).caption


def test_two_models_choose_the_pair_of_the_answer(session: Session) -> None:
    models = ("resnet18", "deit_tiny")
    figure = make_figure("answer", session.asked(replace(session.selection, model=models)))
    assert set(figure.data.select("model_a", "model_b").row(0)) == set(models)
    assert figure.data.height == 6


def test_no_name_hides_another_name_or_a_point(session: Session) -> None:
    spec = make_figure("flops", session).spec
    rows = spec["datasets"]["rows"]  # type: ignore[index]
    named = [row for row in rows if "place" in row]
    assert 5 <= len(named) <= len(rows)


def test_names_of_many_slopes_keep_apart_and_the_caption_counts_the_others(make_grid) -> None:
    random = np.random.default_rng(0)
    series = {name: random.permutation(60) + 1.0 for name in ("a", "b")}
    figure = make_figure("slopes", Session(make_grid(series), Selection()))
    names = figure.spec["datasets"]["names"]  # type: ignore[index]
    plot = int(str(figure.spec["height"])) - 90
    for side in {row["side"] for row in names}:
        ranks = sorted(row["rank"] for row in names if row["side"] == side)
        assert min(np.diff(ranks)) * plot / 60 >= 10
    n_named = len(names) // 2
    assert 10 <= n_named < 60
    assert f"room: {60 - n_named} models." in figure.caption


@pytest.mark.slow
def test_figures_are_drawn_with_fonts_and_stored_with_points(
    session: Session, tmp_path: Path
) -> None:
    pytest.importorskip("vl_convert", reason="the extra report is not installed")
    folder = tmp_path / "figures"
    entries = export_figures(session, folder, forms=("svg", "pdf", "png"), names=("flops", "frm"))
    names = {path.name for path in folder.iterdir()}
    assert names == {str(entry.file) for entry in entries} | {INDEX}
    assert {"flops.csv", "flops.txt", "flops-wide.pdf", "frm.svg", "frm.png"} <= names
    pdf = (folder / "flops.pdf").read_bytes()
    assert pdf.startswith(b"%PDF")
    assert re.search(rb"/MediaBox \[0 0 252(\.0)? ", pdf)
    assert b"LiberationSans" in pdf
    assert int.from_bytes((folder / "flops.png").read_bytes()[16:20], "big") == 1050
    assert pl.read_csv(folder / "flops.csv").height == 13
    # A figure again replaces its own files, but not a changed one.
    export_figures(session, folder, names=("flops",))
    (folder / "flops.csv").write_text("mine")
    with pytest.raises(AnalysisError, match=r"flops\.csv"):
        export_figures(session, folder, names=("flops",))


def test_a_figure_that_the_rows_cannot_give_has_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = _session(write_results(tmp_path / "r", n_samples=3), model="resnet*")
    monkeypatch.setattr(PaperFigure, "svg", lambda _: "<svg/>")
    found = export_figures(few, tmp_path / "out", forms=("svg",), names=("transfer", "answer"))
    assert found[0].file is None
    assert found[0].missing_because is not None
    assert {"answer.svg", "answer.csv"} <= {one.file for one in found}
    with pytest.raises(AnalysisError, match="no figure 'frontiers'"):
        export_figures(few, tmp_path / "out", names=("frontiers",))
    with pytest.raises(AnalysisError, match="gif"):
        export_figures(few, tmp_path / "out", forms=("gif",))
    nobody = few.asked(Selection(model="nobody"))
    with pytest.raises(NoDataError):
        export_figures(nobody, tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Session:
    return _session(hostile_results(tmp_path_factory.mktemp("hostile") / "r"))


@pytest.mark.slow
@pytest.mark.parametrize("name", daily(OF_IMAGES, "flops", "transfer"))
def test_names_from_data_are_text(hostile: Session, name: str) -> None:
    pytest.importorskip("vl_convert", reason="the extra report is not installed")
    svg = make_figure(name, hostile).svg()
    assert HOSTILE_MODEL not in svg
    assert HOSTILE_DEVICE not in svg
    assert "<script" not in svg


@pytest.mark.slow
def test_perplexity_and_rate_of_every_way_are_in_one_picture(tmp_path: Path) -> None:
    figure = make_figure("contexts", _session(write_contexts(tmp_path)))
    rows = figure.spec["datasets"]["rows"]  # type: ignore[index]
    assert len({row["unit"] for row in rows}) == 2
    assert set(figure.data["line"]) == {
        "vanilla", "sliding window 512, stride 256", "hierarchical memory, segment@512",
    }  # fmt: skip
    assert "vanilla: -7.9 % from 512 to 2,048 tokens." in figure.caption


def test_a_hole_needs_a_value() -> None:
    assert filled('[{"x": {"$": "a"}}]', {"a": 1}) == [{"x": 1}]
    with pytest.raises(KeyError):
        filled('{"$": "b"}', {"a": 1})


@pytest.mark.slow
def test_the_scripts_are_bundled_once_and_a_damaged_copy_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("vl_convert", reason="the extra report is not installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    calls = []

    class Library:
        @staticmethod
        def javascript_bundle(snippet: str) -> str:
            calls.append(snippet)
            return "scripts\r\n"

    monkeypatch.setattr(charts, "_library", Library)
    for n_calls in (1, 1):
        script_bundle.cache_clear()
        assert script_bundle() == "scripts\r\n"
        assert len(calls) == n_calls
    (kept,) = (tmp_path / "fleetrank" / "scripts").iterdir()
    kept.write_text(kept.read_text().replace("scripts", "other"))
    script_bundle.cache_clear()
    assert script_bundle() == "scripts\r\n"
    assert len(calls) == 2
    script_bundle.cache_clear()
