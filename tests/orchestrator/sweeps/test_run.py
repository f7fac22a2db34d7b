"""Whole sweeps through the real command, on simulated devices."""

import json
from collections import Counter

import polars as pl
import pytest

from fleetrank.models.cards.card import StagedExport
from fleetrank.models.errors import ExportError
from fleetrank.models.export.process import ExportChild, ExportOrder

ALL = ("m0", "m1", "m2", "m3")


def test_a_sweep_measures_everything_and_says_where_it_is(folder) -> None:
    folder.write_spec(["m0", "m1"], ["sim-a", "sim-b"])
    done = folder.call("sweep", "run", "t", "--inline")
    assert done.returncode == 0, done.stderr
    rows = folder.rows()
    assert len({(row["cell_key"], row["repeat"]) for row in rows}) == len(rows) == 8
    assert {row["status"] for row in rows} == {"ok"}
    parts = str(folder.root / "results/measurements/*/part-*.parquet")
    assert pl.read_parquet(parts, hive_partitioning=False).height == 8
    record = folder.record()
    assert (record.state, record.n_ok, record.n_left) == ("finished", 8, 0)
    assert "results/measurements/sweep_id=t-" in done.stdout
    assert "fleetrank report build" in done.stdout
    assert "8 measured, 0 failed, 0 left" in done.stdout


def test_a_second_sweep_exports_nothing(folder) -> None:
    folder.write_spec(["m0", "m1"], ["sim-a"], repeats=1)
    arguments = ("sweep", "run", "t", "--inline", "--progress", "jsonl")
    exported = []
    for _ in range(2):
        happened = map(json.loads, folder.call(*arguments).stdout.splitlines())
        exported.append([e["is_cached"] for e in happened if e["event"] == "ExportFinished"])
    # The two cards name one file, but a card is part of what is asked for.
    assert exported == [[False] * 2, [True] * 2]


def test_a_plan_is_shown_and_nothing_is_done(folder) -> None:
    folder.write_spec(ALL, ["sim-a", "sim-b"])
    done = folder.call("sweep", "plan", "t")
    assert done.returncode == 0, done.stderr
    assert "8 cells x 2 repeats = 16 processes" in done.stdout
    assert "files: 0 ready, 4 to build" in done.stdout
    assert not (folder.root / "results").exists()
    assert not (folder.root / "artifacts").exists()
    listed = json.loads(folder.call("sweep", "plan", "t", "--json").stdout)
    assert len(listed["cells"]) == 8
    assert listed["skipped"] == []
    assert listed["totals"] == {
        "cells": 8, "repeats": 2, "processes": 16, "skipped": 0, "files_ready": 0,
        "files_to_build": 4, "disk_bytes": 0,
    }  # fmt: skip
    assert listed["time"]["exporting_s"] > 0
    assert listed["time"]["measuring_s"] > 0
    assert (listed["time"]["n_from_history"], listed["time"]["n_simulated"]) == (0, 8)


def test_only_narrows_and_a_resume_remembers_it(folder) -> None:
    folder.write_spec(ALL, ["sim-a", "sim-b"], repeats=1)
    assert folder.call("sweep", "run", "t", "--inline", "--only", "m1").returncode == 0
    again = folder.call("sweep", "resume", "--inline")
    assert again.returncode == 0, again.stderr
    assert [row["model"] for row in folder.rows()] == ["m1", "m1"]


def test_resuming_a_finished_sweep_starts_nothing(folder) -> None:
    folder.write_spec(["m0"], ["sim-a"], repeats=1)
    folder.call("sweep", "run", "t", "--inline")
    # Without --inline: were there anything to do, Ray would start.
    again = folder.call("sweep", "resume")
    assert again.returncode == 0, again.stderr
    assert "1 done before" in again.stdout
    assert len(folder.rows()) == 1


def test_a_resume_refuses_a_sweep_whose_models_or_devices_have_changed(folder) -> None:
    folder.write_spec(["m0"], ["sim-a"], repeats=1)
    folder.call("sweep", "run", "t", "--inline")
    card = folder.root / "cards/m0.toml"
    before = card.read_text()
    card.write_text(before.replace("macs = 1000000", "macs = 2000000"))
    refused = folder.call("sweep", "resume", "--inline")
    assert (refused.returncode, "began: model m0\n" in refused.stderr) == (2, True)
    card.write_text(before)
    folder.add_device("sim-a", duration_s=0.25)
    refused = folder.call("sweep", "resume", "--inline")
    assert (refused.returncode, "began: device sim-a\n" in refused.stderr) == (2, True)


def test_a_broken_model_is_a_stored_failure_and_the_others_are_measured(folder) -> None:
    text = folder.root / "text.onnx"
    text.write_text("this is no network")
    folder.add_model("broken", text)
    folder.write_spec(["m0", "broken"], ["sim-a", "sim-b"])
    done = folder.call("sweep", "run", "t", "--inline")
    assert done.returncode == 3, done.stderr
    outcome = {(row["model"], row["status"], row["error_kind"]) for row in folder.rows()}
    assert outcome == {("m0", "ok", None), ("broken", "failed", "export_failed")}
    assert all(row["error_remedy"] for row in folder.rows() if row["status"] == "failed")
    assert len(folder.rows()) == 8
    again = folder.call("sweep", "resume", "--inline")
    assert again.returncode == 3
    models = Counter(row["model"] for row in folder.rows())
    assert models == {"m0": 4, "broken": 8}, "nothing was measured, so the file is tried again"


@pytest.mark.thorough
def test_what_could_not_be_exported_is_measured_when_a_resume_can(
    folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = ExportChild.export

    def fail(child: ExportChild, order: ExportOrder, timeout_s: float) -> StagedExport:
        if order.request.card.name == "m1":
            raise ExportError("no network", "wait")
        return export(child, order, timeout_s)

    folder.write_spec(["m0", "m1"], ["sim-a"], repeats=1)
    with monkeypatch.context() as patch:
        patch.setattr(ExportChild, "export", fail)
        assert folder.call("sweep", "run", "t", "--inline").returncode == 3
    kinds = {row["model"]: row["error_kind"] for row in folder.rows()}
    assert kinds == {"m0": None, "m1": "export_failed"}
    resumed = folder.call("sweep", "resume", "--inline")
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    ok = Counter(row["model"] for row in folder.rows() if row["status"] == "ok")
    assert ok == {"m0": 1, "m1": 1}


def test_the_schema_of_sweep_files_is_printed(folder) -> None:
    schema = json.loads(folder.call("sweep", "plan", "--schema").stdout)
    assert "models" in schema["properties"]
