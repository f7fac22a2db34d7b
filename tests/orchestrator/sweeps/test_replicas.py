"""Sets of processes through the real command: stored apart, resumed, and refused with a reason."""

import json
import os
import signal
from pathlib import Path

import polars as pl
import psutil
import pytest
from tiny_onnx import save_foreign

from fleetrank.analysis.stored.replica_runs import REPLICA_RUNS
from fleetrank.analysis.stored.side_tables import read_side
from fleetrank.orchestrator.progress_events import Notice
from fleetrank.orchestrator.sweep.sweep_run import resume_sweep, run_sweep
from fleetrank.orchestrator.sweep.sweep_session import RunOptions
from fleetrank.orchestrator.workspace.workspace import Workspace

pytestmark = pytest.mark.slow

SETS = "replicas: {processes: [1, 2], run_s: 0.1}\n"


def _runs(folder) -> pl.DataFrame:
    return read_side(folder.root / "results", REPLICA_RUNS)


def _spec(folder, devices: list[str], repeats: int = 2, more: str = SETS) -> Path:
    spec = folder.write_spec(["m0"], devices, repeats=repeats)
    spec.write_text(spec.read_text() + more)
    return spec


def _options(events: list[object]) -> RunOptions:
    return RunOptions(is_inline=True, subscribers=[events.append])


def test_the_command_compares_sets_with_one_process(folder) -> None:
    words = ("--replicas", "1,2", "--seconds", "0.1", "--repeats", "1", "--json")
    done = folder.call("run", "m0", *words)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["replicas"]["rows"]
    assert [row["n_replicas"] for row in rows] == [1, 2]
    stored = _runs(folder)
    assert len(folder.rows()) == 1, "the journal has the latencies alone"
    assert set(stored["cell_key"]) == {row["cell_key"] for row in folder.rows()}
    assert stored["set_id"].n_unique() == 2
    assert stored.height == 3
    held = [row for row in rows if row["n_sets"]]
    for row in held:
        sets = stored.filter(pl.col("n_replicas") == row["n_replicas"])
        rates = [
            sum(part["inferences"]) / (max(part["end_ns"]) - min(part["start_ns"])) * 1e9
            for _, part in sets.group_by("set_id")
        ]
        assert rates == pytest.approx([row["items_per_s"]])
    asked = "SELECT count(*) FROM replica_runs"
    assert "3" in folder.call("query", asked, "--format", "csv").stdout
    assert folder.call("report", "show", "scaling", "--part", "replicas", "--json").returncode == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("1,2 --device sim-a", 4, "one process"),
        ("1,2 --seconds 5000 --device sim-a", 4, "kind simulated"),
        *((f"{wrong} --device sim-a", 2, "") for wrong in ("", "0", "two", "1,,2", "1,1", "1,999")),
        ("99999999999999999999", 2, ""),
    ],
)
def test_what_has_no_sets_is_refused_before_anything_is_measured(
    folder, words: str, code: int, said: str
) -> None:
    done = folder.call("run", "m0", "--replicas", *words.split(" "))
    assert done.returncode == code, done.stdout
    assert said in done.stderr
    assert "timeout_s" not in done.stderr, "the time limit leaves room for the seconds"
    assert not (folder.root / "results").exists()


@pytest.mark.thorough
def test_a_stop_leaves_the_other_sets_to_a_resume_and_a_set_that_fails_has_its_reason(
    folder, tmp_path: Path
) -> None:
    def stop(event: object) -> None:
        if isinstance(event, Notice) and "[set 1/4]" in event.message:
            os.kill(os.getpid(), signal.SIGINT)

    folder.add_model("foreign", save_foreign(tmp_path / "foreign.onnx"))
    spec = folder.write_spec(["foreign", "m0"], ["local-cpu"], repeats=1)
    spec.write_text(spec.read_text() + SETS)
    options = RunOptions(is_inline=True, subscribers=[stop])
    outcome = run_sweep(Workspace.at(folder.root), spec, options)
    assert outcome.is_interrupted
    assert (outcome.n_ok, outcome.n_failed, outcome.n_missing) == (1, 1, 1), "every latency"
    assert 1 <= _runs(folder)["set_id"].n_unique() < 4
    events: list[object] = []
    outcome = resume_sweep(Workspace.at(folder.root), None, _options(events))
    assert outcome.n_sets_failed == 2
    levels = [one.level for one in events if isinstance(one, Notice) and "[set " in one.message]
    assert sorted(levels) == ["info", "info", "warning"]
    failed = _runs(folder).filter(pl.col("model") == "foreign")
    assert set(failed["status"]) == {"failed"}
    assert failed["error_message"].null_count() == 0
    ok = _runs(folder).filter(pl.col("status") == "ok")
    assert set(ok["model"]) == {"m0"}
    assert set(ok["n_replicas"]) == {1, 2}


def test_the_plan_says_how_many_sets_and_which_do_not_fit(folder) -> None:
    _spec(folder, ["local-cpu", "sim-a"])
    done = folder.call("sweep", "plan", "sweeps/t.yaml")
    assert "4 sets of" in done.stdout, done.stderr
    assert "one process" in done.stdout
    plain = folder.write_spec(["m0"], ["local-cpu"])
    assert "sets" not in folder.call("sweep", "plan", str(plain)).stdout
    long = _spec(folder, ["local-cpu"], more="replicas: {processes: [1, 2], run_s: 90}\n")
    refused = folder.call("sweep", "plan", str(long))
    assert (refused.returncode, "raise timeout_s" in refused.stderr) == (2, True)


@pytest.mark.skipif(psutil.virtual_memory().total > 100e9, reason="256 copies of GPT-2 may fit")
def test_copies_that_need_more_memory_than_the_host_has_are_refused(folder) -> None:
    spec = folder.root / "sweeps" / "large.yaml"
    spec.write_text(
        "name: large\nmodels: [gpt2]\nworkloads: [prefill@128]\nruntimes: [onnx]\n"
        "devices: [local-cpu]\nreplicas: [1, 256]\n"
    )
    done = folder.call("sweep", "plan", str(spec))
    assert done.returncode == 0, done.stderr
    assert "256 copies" in done.stdout
    assert "5 sets of" in done.stdout
