"""Ctrl-C, SIGTERM and kill -9: nothing finished is lost, nothing is measured twice."""

import json
import os
import signal
from collections.abc import Callable

import psutil
import pytest
from daily import daily
from waiting import MODES, ended, ok_repeats, start, wait_for_notice, wait_for_repeats

from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.dispatch import ray_process
from fleetrank.orchestrator.progress_words import STOPPING

RAY_AGENTS = {"ray::DashboardAgent", "ray::RuntimeEnvAgent"}
"""Idle helpers of a raylet: when that is killed they tell a server which is gone, too, and end 60 s
later (a constant of Ray 2.60); they hold no device and no worker."""


@pytest.mark.parametrize("mode", daily(MODES, MODES[-1]))
def test_kill_9_of_the_driver_then_resume_gives_the_same_set(folder, mode: str) -> None:
    """A process, because only one that is killed leaves its lease, its workers and its Ray."""
    folder.add_device("sim-a", duration_s=0.15)
    folder.write_spec(["m0", "m1", "m2", "m3"], ["sim-a"], repeats=5)
    process = start(folder, mode)
    wait_for_repeats(process, 6)
    family = [
        child
        for child in psutil.Process(process.pid).children(recursive=True)
        if child.name() not in RAY_AGENTS
    ]
    os.kill(process.pid, signal.SIGKILL)
    ended(process)
    assert psutil.wait_procs(family, timeout=20)[1] == [], "processes outlive their driver"
    before = ok_repeats(folder)
    assert 6 <= sum(before.values()) < 20
    status = json.loads(folder.call("sweep", "status", "--json").stdout)
    assert (status["state"], status["n_ok"]) == ("stopped", sum(before.values()))

    resumed = folder.call("sweep", "resume", "--inline")
    assert resumed.returncode == 0, resumed.stderr
    after = ok_repeats(folder)
    assert len(after) == 20, "none is missing"
    assert set(after.values()) == {1}, "none is measured twice"
    assert folder.record().state == "finished"


@pytest.mark.parametrize(
    "mode", ["--inline", pytest.param("", marks=[pytest.mark.ray, pytest.mark.thorough])]
)
def test_ctrl_c_once_stores_the_running_repeat_and_stops(folder, mode: str) -> None:
    """A process, because a terminal signals the whole group."""
    folder.add_device("sim-a", duration_s=1.0)
    folder.write_spec(["m0", "m1", "m2"], ["sim-a"], repeats=3)
    process = start(folder, mode)
    wait_for_repeats(process, 2, "RepeatStarted")
    # To the whole group, as a terminal does.
    os.killpg(process.pid, signal.SIGINT)
    code, error = ended(process)
    assert code == 130, error
    assert "Traceback" not in error
    assert [row["status"] for row in folder.rows()] == ["ok", "ok"]
    assert folder.record().state == "interrupted"
    assert "sweep resume" in error
    parts = list((folder.root / "results/measurements").rglob("part-*.parquet"))
    assert parts, "what was measured is published"


@pytest.mark.thorough
@pytest.mark.parametrize("mode", MODES)
def test_ctrl_c_twice_stops_now_and_the_repeat_is_measured_again(folder, mode: str) -> None:
    folder.add_device("sim-a", duration_s=10.0)
    folder.write_spec(["m0"], ["sim-a"], repeats=1)
    process = start(folder, mode)
    wait_for_repeats(process, 1, "RepeatStarted")
    os.killpg(process.pid, signal.SIGINT)
    wait_for_notice(process, STOPPING)
    os.killpg(process.pid, signal.SIGINT)
    code, error = ended(process, limit_s=60)
    assert code == 130, error
    assert [row["error_kind"] for row in folder.rows()] == ["interrupted"]
    assert folder.call("sweep", "resume", "--inline").returncode == 0
    assert [row["attempt"] for row in folder.rows()] == [0, 1]


def ignore_ctrl_c() -> None:
    """As a shell does for the background jobs of a script."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.parametrize(
    ("number", "setup", "statuses"),
    [
        (signal.SIGTERM, None, ["failed"]),
        pytest.param(signal.SIGTERM, ignore_ctrl_c, ["failed"], marks=pytest.mark.thorough),
        pytest.param(signal.SIGINT, ignore_ctrl_c, ["ok"], marks=pytest.mark.thorough),
    ],
)
def test_sigterm_stops_now_and_a_background_job_of_a_script_hears_sigint(
    folder, number: int, setup: Callable[[], None] | None, statuses: list[str]
) -> None:
    """A process, because the handlers are those of a whole program."""
    folder.add_device("sim-a", duration_s=60.0 if number == signal.SIGTERM else 1.0)
    folder.write_spec(["m0", "m1"], ["sim-a"], repeats=1)
    process = folder.start("sweep", "run", "t", "--inline", "--progress", "jsonl", setup=setup)
    wait_for_repeats(process, 1, "RepeatStarted")
    process.send_signal(number)
    code, error = ended(process, limit_s=60)
    assert code == 130, error
    assert [row["status"] for row in folder.rows()] == statuses


def test_sigterm_while_ray_starts_interrupts(folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def start() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(ray_process, "RayProcess", start)
    folder.add_device("sim-a")
    folder.write_spec(["m0"], ["sim-a"], repeats=1)
    assert run(["--workspace", str(folder.root), "sweep", "run", "t"]) == 130
    assert folder.record().state == "interrupted"
