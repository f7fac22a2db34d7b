"""Profiles through the real command: stored apart, resumed, and refused with a reason."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx
import polars as pl
import pytest
from stored_part import forget_rows

from fleetrank.analysis.stored.component_times import COMPONENT_TIMES, OF_MEASUREMENTS
from fleetrank.analysis.stored.side_tables import read_side
from fleetrank.orchestrator.progress_events import Notice
from fleetrank.orchestrator.store.journal import Entry
from fleetrank.orchestrator.store.side import append_side
from fleetrank.orchestrator.sweep.sweep_run import resume_sweep, run_sweep
from fleetrank.orchestrator.sweep.sweep_session import RunOptions
from fleetrank.orchestrator.workspace.workspace import Workspace

pytestmark = pytest.mark.slow


@pytest.fixture
def named(folder, onnx_file: Path) -> str:
    """A model of the workspace whose nodes name a module."""
    model = onnx.load(onnx_file)
    for node in model.graph.node:
        node.name = node.name or f"node_{node.output[0]}"
        scopes = str(["", "body", f"body.{node.op_type.lower()}", node.name])
        node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=scopes)
    onnx.save(model, folder.root / "named.onnx")
    folder.add_model("named", folder.root / "named.onnx")
    return "named"


def _is_profile_of(repeat: int) -> Callable[[Entry], bool]:
    return lambda one: one.table == COMPONENT_TIMES.name and one.row["repeat"] == repeat


def _profiles(folder) -> pl.DataFrame:
    return read_side(folder.root / "results", COMPONENT_TIMES)


def _run(folder, spec: Path) -> list[object]:
    events: list[object] = []
    run_sweep(Workspace.at(folder.root), spec, _options(events))
    return events


def _options(events: list[object]) -> RunOptions:
    return RunOptions(is_inline=True, subscribers=[events.append])


@pytest.mark.thorough
def test_a_sweep_profiles_what_can_be_profiled_and_says_the_rest(folder, named: str) -> None:
    spec = folder.write_spec([named], ["local-cpu", "sim-a"], repeats=1)
    spec.write_text(spec.read_text() + "profile: true\n")
    notices = [event.message for event in _run(folder, spec) if isinstance(event, Notice)]
    assert any("no profile of named" in text and "sim-a" in text for text in notices)
    measured, stored = folder.rows(), _profiles(folder)
    assert len(measured) == 2, "the journal has the latencies alone"
    assert set(stored["device"]) == {row["device"] for row in measured} - {"sim-a"}
    assert set(stored["cell_key"]) < {row["cell_key"] for row in measured}
    assert set(stored["repeat"]) == {0}
    by_operator = folder.call("report", "show", "components", "--split", "operator", "--json")
    assert "Conv" in by_operator.stdout, by_operator.stderr
    queried = folder.call("query", "SELECT DISTINCT module FROM component_times", "--format", "csv")
    assert "body.conv" in queried.stdout, queried.stderr


def test_nothing_is_measured_where_nothing_can_be_profiled(folder, named: str) -> None:
    refused = folder.call("run", named, "--profile", "--device", "sim-a")
    assert refused.returncode == 4
    assert "simulated cannot be profiled" in refused.stderr
    alone = folder.call("run", named, "--profile", "--backend", "cpu")
    assert alone.returncode == 2
    assert "--runtime" in alone.stderr
    assert folder.store.sweep_ids() == []


@pytest.mark.thorough
def test_a_resume_makes_the_profiles_that_are_missing(folder, named: str) -> None:
    spec = folder.write_spec([named], ["local-cpu"], repeats=3)
    spec.write_text(spec.read_text() + "profile: true\n")
    _run(folder, spec)
    measured = folder.rows()
    forget_rows(folder.store, *folder.store.sweep_ids(), _is_profile_of(1))
    kept = _profiles(folder)
    assert set(kept["repeat"]) == {0, 2}
    resume_sweep(Workspace.at(folder.root), None, _options([]))
    assert set(_profiles(folder)["repeat"]) == {0, 1, 2}
    assert _profiles(folder)[: kept.height].equals(kept)
    assert folder.rows() == measured


@pytest.mark.thorough
def test_a_failed_profile_is_tried_again_when_asked(folder, named: str) -> None:
    spec = folder.write_spec([named], ["local-cpu"], repeats=1)
    spec.write_text(spec.read_text() + "profile: true\n")
    _run(folder, spec)
    results = folder.root / "results"
    row = {name: _profiles(folder)[name][0] for name in OF_MEASUREMENTS}
    broken = {"status": "failed", "error_kind": "crashed", "error_is_transient": False}
    (sweep_id,) = folder.store.sweep_ids()
    forget_rows(folder.store, sweep_id, _is_profile_of(0))
    append_side(results, COMPONENT_TIMES, [row | broken], sweep_id=sweep_id)
    resume_sweep(Workspace.at(folder.root), None, _options([]))
    assert set(_profiles(folder)["status"]) == {"failed"}
    again = replace(_options([]), retries_failed=True)
    resume_sweep(Workspace.at(folder.root), None, again)
    assert set(_profiles(folder)["status"]) == {"failed", "ok"}
    assert set(_profiles(folder)["attempt"]) == {0, 1}
