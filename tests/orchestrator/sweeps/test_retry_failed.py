"""Resuming what failed for good, on simulated devices with faults."""

import json
import re
import shlex
import shutil
from collections import defaultdict

import polars as pl
import pytest

from fleetrank.analysis.stored.cell_values import dropped_attempts
from fleetrank.analysis.stored.columns import ORIGINS
from fleetrank.analysis.stored.load import load_measurements, valid_attempts
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.progress_events import (
    Notice,
    RepeatStarted,
    SweepFinished,
    SweepStarted,
)
from fleetrank.orchestrator.progress_words import sentence
from fleetrank.orchestrator.sweep.sweep_run import resume_sweep, run_sweep
from fleetrank.orchestrator.sweep.sweep_session import RunOptions
from fleetrank.orchestrator.workspace.workspace import Workspace

_FAULTY = "name: {name}\nkind: simulated\noptions: {{crash_rate: {rate}}}\n"


def _add_faulty(folder, name: str, rate: float) -> None:
    (folder.root / "devices" / f"{name}.yaml").write_text(_FAULTY.format(name=name, rate=rate))


def _start(folder) -> SweepFinished:
    workspace = Workspace.at(folder.root)
    return run_sweep(workspace, workspace.sweeps / "t.yaml", RunOptions(is_inline=True))


def _resume(folder, **options: object) -> tuple[SweepFinished, list[object]]:
    """The outcome of a resume, and its events."""
    events: list[object] = []
    chosen = RunOptions(is_inline=True, subscribers=[events.append], **options)
    return resume_sweep(Workspace.at(folder.root), None, chosen), events


def _attempts(folder) -> dict[tuple[str, int], list[str]]:
    """Status of each attempt at each repeat of a model."""
    found: dict[tuple[str, int], list[str]] = defaultdict(list)
    for row in sorted(folder.rows(), key=lambda row: row["attempt"]):
        found[row["model"], row["repeat"]].append(row["status"])
    return dict(found)


def test_retries_replace_failures_until_all_are_measured(folder) -> None:
    _add_faulty(folder, "flaky", 0.4)
    folder.write_spec(["m0", "m1"], ["flaky"], repeats=12)
    outcome, before = _start(folder), folder.rows()
    for _ in range(60):
        if not outcome.n_missing:
            break
        outcome, _events = _resume(folder, retries_failed=True)
    assert outcome.n_ok == 24
    after = folder.rows()
    assert after[: len(before)] == before, "attempts before stay stored"
    attempts = _attempts(folder)
    for statuses in attempts.values():
        assert statuses == ["failed"] * (len(statuses) - 1) + ["ok"]
    n_failed = sum(map(len, attempts.values())) - 24
    assert n_failed > 0
    frame = load_measurements(folder.root / "results", origins=ORIGINS)
    assert valid_attempts(frame).select(pl.len()).collect().item() == 24
    assert dropped_attempts(frame)["reason"].to_list() == ["retried"] * n_failed


def test_a_plain_resume_keeps_a_permanent_failure_and_only_the_named_model_is_retried(
    folder,
) -> None:
    _add_faulty(folder, "broken", 1.0)
    folder.write_spec(["m0", "m1"], ["broken"], repeats=1)
    outcome, before = _start(folder), folder.rows()
    assert (outcome.n_ok, outcome.n_failed) == (0, 2)
    outcome, events = _resume(folder)
    assert outcome.n_failed == 2
    assert not [event for event in events if isinstance(event, RepeatStarted)]
    assert folder.rows() == before
    outcome, events = _resume(folder, retries_failed=True, restricted_to="m0")
    assert _attempts(folder) == {("m0", 0): ["failed", "failed"], ("m1", 0): ["failed"]}
    assert (outcome.n_failed, outcome.n_left) == (2, 0)
    (started,) = [event for event in events if isinstance(event, SweepStarted)]
    assert (started.n_cells, started.n_repeats, started.n_done) == (1, 1, 0)
    (notice,) = [event for event in events if isinstance(event, Notice)]
    assert "1 failed repeat" in notice.message
    with pytest.raises(UsageError, match="m9"):
        _resume(folder, retries_failed=True, restricted_to="m9")


def test_only_narrows_the_pending_repeats_of_a_resume_too(folder) -> None:
    folder.write_spec(["m0", "m1"], ["sim-a"], repeats=2)
    _start(folder)
    results = folder.root / "results"
    shutil.rmtree(results / "measurements")
    for kept in (*(results / "journal").iterdir(), *(results / "sweeps").glob("*.parts")):
        kept.unlink()
    outcome, _events = _resume(folder, restricted_to="m1")
    assert (outcome.n_ok, outcome.n_left) == (2, 2)
    assert {row["model"] for row in folder.rows()} == {"m1"}
    assert folder.record().state == "stopped"
    outcome, _events = _resume(folder)
    assert (outcome.n_ok, folder.record().state) == (4, "finished")
    before = folder.rows()
    _outcome, events = _resume(folder, retries_failed=True)
    assert any("nothing has failed" in (sentence(event) or "") for event in events)
    assert folder.rows() == before


def test_the_next_step_after_failures_retries_them(folder) -> None:
    _add_faulty(folder, "broken", 1.0)
    folder.write_spec(["m0"], ["broken", "sim-a"], repeats=1)
    done = folder.call("sweep", "run", "t", "--inline", "--trust")
    assert done.returncode == 3, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("next:")]
    words = shlex.split(line.removeprefix("next:"))
    sweep_id = folder.store.newest_sweep()
    expected = ["sweep", "resume", sweep_id, "--retry-failed", "--inline", "--trust"]
    assert words == ["fleetrank", *expected]
    assert "report:  fleetrank report build" in done.stdout
    again = folder.call(*words[1:], "--workspace", str(folder.root))
    assert again.returncode == 3, again.stderr
    assert f"--workspace {folder.root}" in again.stdout
    status = folder.call("sweep", "status").stdout
    assert status.splitlines()[-1].endswith(f"resume {sweep_id} --retry-failed")
    (failure,) = json.loads(folder.call("sweep", "status", "--json").stdout)["failures"]
    assert (failure["repeat"], failure["tries"]) == (0, 2)
    (shown,) = [re.split(r"\s{2,}", line) for line in status.splitlines() if line.startswith("m0")]
    assert shown[2] == "1", "people count repeats from one"
