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


def _options(events: list[object]) -> RunOptions:
    return RunOptions(is_inline=True, subscribers=[events.append])


def test_nothing_is_measured_where_nothing_can_be_profiled(folder, named: str) -> None:
    refused = folder.call("run", named, "--profile", "--device", "sim-a")
    assert refused.returncode == 4
    assert "simulated cannot be profiled" in refused.stderr
    alone = folder.call("run", named, "--profile", "--backend", "cpu")
    assert alone.returncode == 2
    assert "--runtime" in alone.stderr
    assert folder.store.sweep_ids() == []


def test_a_sweep_profiles_what_it_can_and_a_resume_what_is_missing_or_failed(
    folder, named: str
) -> None:
    spec = folder.write_spec([named], ["local-cpu", "sim-a"])
    spec.write_text(spec.read_text() + "profile: true\n")
    events: list[object] = []
    run_sweep(Workspace.at(folder.root), spec, _options(events))
    notices = [event.message for event in events if isinstance(event, Notice)]
    assert any("no profile of named" in text and "sim-a" in text for text in notices)
    measured, stored = folder.rows(), _profiles(folder)
    assert len(measured) == 4, "the journal has the latencies alone"
    assert set(stored["device"]) == {row["device"] for row in measured} - {"sim-a"}
    assert set(stored["cell_key"]) < {row["cell_key"] for row in measured}
    by_operator = folder.call("report", "show", "components", "--split", "operator", "--json")
    assert "Conv" in by_operator.stdout, by_operator.stderr
    queried = folder.call("query", "SELECT DISTINCT module FROM component_times", "--format", "csv")
    assert "body.conv" in queried.stdout, queried.stderr
    (sweep_id,) = folder.store.sweep_ids()
    forget_rows(folder.store, sweep_id, _is_profile_of(1))
    kept = _profiles(folder)
    resume_sweep(Workspace.at(folder.root), None, _options([]))
    assert set(_profiles(folder)["repeat"]) == {0, 1}
    assert _profiles(folder)[: kept.height].equals(kept)
    forget_rows(folder.store, sweep_id, _is_profile_of(1))
    row = {name: kept[name][0] for name in OF_MEASUREMENTS} | {"repeat": 1}
    broken = {"status": "failed", "error_kind": "crashed", "error_is_transient": False}
    append_side(folder.root / "results", COMPONENT_TIMES, [row | broken], sweep_id=sweep_id)
    for options, statuses in (
        (_options([]), {"failed"}),
        (replace(_options([]), retries_failed=True), {"failed", "ok"}),
    ):
        resume_sweep(Workspace.at(folder.root), None, options)
        found = _profiles(folder).filter(pl.col("repeat") == 1)
        assert set(found["status"]) == statuses
    assert set(found["attempt"]) == {0, 1}
    assert folder.rows() == measured
