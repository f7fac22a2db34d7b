"""Profiles in tables and on the page: one component is slow on one phone, and is found."""

from pathlib import Path

import polars as pl
import pytest
from fleet_rows import NETS, PLACES, SWEEP, write_results

from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.report.evidence import Evidence, gather
from fleetrank.analysis.report.page_tables import PageTables, page_tables
from fleetrank.analysis.report.sections import page_sections
from fleetrank.analysis.stored.component_times import COMPONENT_TIMES, OF_MEASUREMENTS
from fleetrank.analysis.stored.load import load_measurements, valid_attempts
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import session_table
from fleetrank.orchestrator.store.side import append_side

SLOW, TIMES = "blocks.2", 4
HOSTILE = '</script><img src=x onerror=alert(1)>"&'
MODELS = [net.name for net in NETS[:3]]
_PARTS = {"stem": 100_000, "blocks.0": 200_000, "blocks.1": 200_000, SLOW: 200_000, HOSTILE: 50_000}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three models with profiles on every platform; a depthwise part is slow on the phone."""
    folder = write_results(tmp_path_factory.mktemp("profiles") / "results", nets=NETS[:5])
    measured = valid_attempts(load_measurements(folder)).filter(pl.col("model").is_in(MODELS))
    kernels = []
    for row in measured.select(OF_MEASUREMENTS).collect().to_dicts():
        for name, ns in _PARTS.items():
            is_slow = name == SLOW and row["device"] == "pixel-7"
            one = {"node": name, "module": f"{name}.conv", "operator": "Conv", "calls": 1}
            noisy_ns = ns * (TIMES if is_slow else 1) + 10 * int(row["repeat"])
            kernels.append({**row, **one, "kernel_ns": noisy_ns, "runs": 30, "run_ns": 10**6})
    append_side(folder, COMPONENT_TIMES, kernels, sweep_id=SWEEP)
    return folder


@pytest.fixture(scope="module")
def made(results: Path) -> tuple[Evidence, PageTables]:
    evidence = gather(results, Selection())
    return evidence, page_tables(evidence)


def _session(results: Path, **selection: object) -> Session:
    return Session(load_measurements(results), Selection(**selection), results=results)


@pytest.mark.slow
def test_shares_are_of_each_model_and_platform(results: Path) -> None:
    table = session_table("components", _session(results))
    sums = table.frame.group_by("model", "platform_key").agg(pl.col("share").sum())
    assert sums.height == len(MODELS) * len(PLACES)
    assert sums["share"].to_list() == pytest.approx([1.0] * sums.height)
    one = table.frame.filter(pl.col("component") == "stem")
    assert set(table.frame["n_processes"]) == {5}
    assert (one["about_ms"] / one["latency_ms"]).to_list() == pytest.approx(one["share"].to_list())
    assert not any("module" in note for note in table.notes)


@pytest.mark.slow
def test_the_component_that_is_slow_on_a_device_is_found(results: Path) -> None:
    chosen = {"source": "cpu-3fa2c1/onnx/*", "target": "pixel-7/onnx/*"}
    frame = session_table("components/ratios", _session(results, **chosen)).frame
    assert frame["source"].n_unique() == frame["target"].n_unique() == 1
    for _model, rows in frame.group_by("model"):
        assert rows["component"][0] == SLOW
        assert rows["relative"][0] > 1 > rows["relative"][1]
        assert rows["relative"][0] / rows["relative"][1] == pytest.approx(TIMES, rel=0.01)
        assert (rows["relative_low"] <= rows["relative"]).all()
        assert (rows["ratio"] / rows["relative"]).to_list() == pytest.approx(
            rows["model_ratio"].to_list()
        )


@pytest.mark.slow
def test_components_of_one_platform_alone_are_named(results: Path, tmp_path: Path) -> None:
    pair = {"source": "cpu-3fa2c1/onnx/*", "target": "pixel-7/onnx/*"}
    whole = session_table("components/ratios", _session(results, **pair))
    assert not any("Left out" in note for note in whole.notes)
    folder = write_results(tmp_path / "results")
    measured = valid_attempts(load_measurements(folder)).filter(pl.col("model") == MODELS[0])
    times = {"operator": "Conv", "calls": 1, "kernel_ns": 10**6, "runs": 30, "run_ns": 10**7}
    alone = {"pixel-7": ["act.1", "act.2", "act.3", "act.4", "act.5"]}
    rows = [
        {**row, **times, "node": name, "module": name}
        for row in measured.select(OF_MEASUREMENTS).collect().to_dicts()
        for name in ("stem", "blocks.0", *alone.get(row["device"], ()))
    ]
    append_side(folder, COMPONENT_TIMES, rows, sweep_id=SWEEP)
    table = session_table("components/ratios", _session(folder, **pair))
    assert set(table.frame["component"]) == {"stem", "blocks.0"}
    (note,) = [one for one in table.notes if "Left out" in one]
    assert all(f"act.{number}" in note for number in range(1, 5))
    assert "act.5" not in note, "the smallest one is counted"
    assert f"of {MODELS[0]} on {table.frame['target'][0]} (71.43 %" in note
    assert "cpu-3fa2c1" not in note, "that platform has nothing alone"


@pytest.mark.slow
def test_a_delegate_that_reports_no_operators_is_named(results: Path, tmp_path: Path) -> None:
    folder = write_results(tmp_path / "results")
    measured = valid_attempts(load_measurements(folder)).filter(pl.col("model") == MODELS[0])
    times = {"module": None, "calls": 1, "kernel_ns": 10**6, "runs": 30, "run_ns": 10**6}
    rows = [
        {**row, **times, "node": name, "operator": name}
        for row in measured.select(OF_MEASUREMENTS).collect().to_dicts()
        for name in ("TfLiteGpuDelegateV2", "SOFTMAX")
    ]
    append_side(folder, COMPONENT_TIMES, rows, sweep_id=SWEEP)
    asked = {"settings": (("split", "operator"),)}
    (note,) = [
        one
        for one in session_table("components", _session(folder, **asked)).notes
        if "delegate" in one
    ]
    assert note.startswith("TfLiteGpuDelegateV2:")
    usual = session_table("components", _session(results, **asked))
    assert not any("delegate" in one for one in usual.notes)


@pytest.mark.slow
@pytest.mark.parametrize("depth", ["0", "1.5", "99"])
def test_a_depth_out_of_range_is_refused(results: Path, depth: str) -> None:
    with pytest.raises(AnalysisError, match="depth"):
        session_table("components", _session(results, settings=(("depth", depth),)))


@pytest.mark.slow
def test_one_platform_has_no_ratios(results: Path) -> None:
    session = _session(results, source="pixel-7/onnx/*", target="pixel-7/onnx/*")
    with pytest.raises(NoDataError) as found:
        session_table("components/ratios", session)
    assert "device" in found.value.remedy


@pytest.mark.slow
def test_platforms_whose_components_have_other_names_are_told_apart(tmp_path: Path) -> None:
    folder = write_results(tmp_path / "results")
    measured = valid_attempts(load_measurements(folder)).filter(pl.col("model") == MODELS[0])
    times = {"operator": "Conv", "calls": 1, "kernel_ns": 10**6, "runs": 30, "run_ns": 10**7}
    rows = [
        {**row, **times, "node": "a", "module": f"of_{row['device']}"}
        for row in measured.select(OF_MEASUREMENTS).collect().to_dicts()
    ]
    append_side(folder, COMPONENT_TIMES, rows, sweep_id=SWEEP)
    pair = {"source": "cpu-3fa2c1/onnx/*", "target": "pixel-7/onnx/*"}
    with pytest.raises(NoDataError, match=MODELS[0]) as found:
        session_table("components/ratios", _session(folder, **pair))
    assert "split=module" in found.value.remedy


@pytest.mark.slow
def test_shares_are_tables_of_the_page(made: tuple[Evidence, PageTables]) -> None:
    (section,) = [one for one in page_sections(*made) if one.id == "components"]
    assert [table.id.startswith("components") for table in section.tables] == [True, True]
