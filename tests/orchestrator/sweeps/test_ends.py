"""What a sweep cannot go on with ends it by a message and a remedy; nothing measured is lost."""

import hashlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from daily import daily
from ssh_board import why_no_mounts, with_little_room, with_read_only
from waiting import MODES, ended, ok_repeats, start, wait_for_repeats
from wording import has

from fleetrank.foundation.supervised_child import SupervisedChild
from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.progress import Event, JsonLines, SweepFinished

ALL = ("m0", "m1", "m2", "m3")
KIB = 1024


@pytest.fixture(scope="module")
def mounts() -> None:
    if (reason := why_no_mounts()) is not None:
        pytest.skip(reason)


def words(mode: str, *command: str) -> list[str]:
    return [*command, *([mode] if mode else [])]


def content_of(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.thorough
def test_a_read_only_results_folder_ends_each_command_that_writes_and_changes_nothing(
    folder, mounts: None
) -> None:
    folder.write_spec(["m0"], ["sim-a"], repeats=1)
    assert folder.run("sweep", "run", "t", "--inline").returncode == 0
    sweep_id = folder.store.newest_sweep()
    results = folder.root / "results"
    stored = content_of(results)
    for command in (
        ("sweep", "run", "t"),
        ("sweep", "resume", "--inline"),
        ("results", "exclude", sweep_id, "--reason", "x"),
        ("results", "export", "--format", "csv", "--out", "results/all.csv"),
        ("report", "build", "--include-simulated", "--out", "results/report.html"),
        ("report", "build", "--tables", "results/tables", "--include-simulated"),
    ):
        refused = folder.run(*command, before=with_read_only(results))
        assert refused.returncode == 1, (command, refused.stdout + refused.stderr)
        assert "Read-only file system" in refused.stderr, command
        assert "-> get the permission" in refused.stderr, command
    for command in (("sweep", "status"), ("results", "verify"), ("query", "SELECT 1")):
        assert folder.run(*command, before=with_read_only(results)).returncode == 0, command
    assert content_of(results) == stored


@pytest.mark.thorough
@pytest.mark.parametrize("mode", daily(MODES, MODES[-1]))
def test_a_full_file_system_ends_the_sweep_and_a_resume_completes_it(
    folder, mounts: None, mode: str
) -> None:
    folder.write_spec(ALL, ["sim-a", "sim-b"], repeats=5)
    results, kept = folder.root / "results", folder.root / "kept"
    before = with_little_room(results, 96 * KIB, kept)
    full = folder.run(*words(mode, "sweep", "run", "t"), before=before)
    assert full.returncode == 1, full.stdout + full.stderr
    assert "the disk is full" in full.stderr
    assert "-> free some space" in full.stderr
    assert "sweep resume t-" in full.stderr
    shutil.copytree(kept, results, dirs_exist_ok=True)
    stored = ok_repeats(folder)
    assert 0 < len(stored) < 40
    code, error = ended(start(folder, mode, "resume"), 120)
    assert code == 0, error
    after = ok_repeats(folder)
    assert len(after) == 40
    assert set(after.values()) == {1}
    assert folder.call("results", "verify").returncode == 0


@pytest.mark.ray
def test_a_limit_on_the_size_of_files_is_said_before_ray_meets_it(folder) -> None:
    folder.write_spec(["m0"], ["sim-a"], repeats=1)

    def limit(kib: int = 40) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (kib * KIB, kib * KIB))

    refused = folder.run("sweep", "run", "t", setup=limit)
    assert refused.returncode == 1, refused.stderr
    assert f"{40 * KIB} bytes" in refused.stderr
    assert "-> raise the limit" in refused.stderr
    # Its row fits into the journal, and no Parquet file does.
    unpublished = folder.run("sweep", "resume", "--inline", setup=lambda: limit(16))
    assert unpublished.returncode == 1, unpublished.stdout
    assert "parquet cannot be written" in unpublished.stderr
    assert "sweep resume t-" in unpublished.stderr
    assert folder.run("sweep", "resume").returncode == 0
    assert list(ok_repeats(folder).values()) == [1]
    assert folder.call("results", "verify").returncode == 0


@pytest.mark.thorough
@pytest.mark.parametrize("mode", daily(MODES, MODES[-1]))
def test_a_workspace_that_is_moved_ends_the_sweep_which_goes_on_in_the_new_place(
    folder, mode: str
) -> None:
    folder.add_device("sim-a", duration_s=0.3)
    folder.add_device("sim-b", duration_s=0.3)
    folder.write_spec(ALL, ["sim-a", "sim-b"], repeats=5)
    process = start(folder, mode)
    wait_for_repeats(process, 4)
    moved = replace(folder, root=folder.root.with_name("moved"))
    folder.root.rename(moved.root)
    out, error = process.communicate(timeout=60)
    assert process.returncode == 1, error
    assert has(error, "moved", str(moved.root), "fleetrank sweep resume")
    assert not folder.root.exists()
    seen = 4 + sum(json.loads(line)["event"] == "RepeatFinished" for line in out.splitlines())
    stored = ok_repeats(moved)
    assert seen == sum(stored.values()) < 40
    code, error = ended(start(moved, mode, "resume"), 120)
    assert code == 0, error
    after = ok_repeats(moved)
    assert len(after) == 40
    assert set(after.values()) == {1}
    assert moved.run("results", "verify").returncode == 0


CLOCK = """
# Reads a day earlier as soon as a file is there, for what fleetrank's own processes ask.
import builtins, datetime, os, types

class _SetBack(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return super().now(tz) - datetime.timedelta(days=os.path.exists(os.environ["SET_BACK"]))

_shown = types.ModuleType("datetime")
vars(_shown).update(vars(datetime), datetime=_SetBack)
_import = builtins.__import__

def _with_clock(name, globals=None, *rest, **named):
    owner = str((globals or {}).get("__name__")).partition(".")[0]
    if name == "datetime" and owner == "fleetrank":
        return _shown
    return _import(name, globals, *rest, **named)

builtins.__import__ = _with_clock
"""


def test_a_clock_that_jumps_back_a_day_loses_nothing_and_the_next_sweep_is_the_newest(
    folder, tmp_path: Path
) -> None:
    clock = tmp_path / "clock"
    clock.mkdir()
    (clock / "sitecustomize.py").write_text(CLOCK)
    set_back = clock / "set_back"
    path = os.pathsep.join(filter(None, (str(clock), os.environ.get("PYTHONPATH"))))
    env = {"PYTHONPATH": path, "SET_BACK": str(set_back)}
    folder.add_device("sim-a", duration_s=0.3)
    folder.write_spec(["m0", "m1"], ["sim-a"], repeats=4)
    command = ("sweep", "run", "t", "--inline", "--progress", "jsonl")
    process = folder.start(*command, env=env)
    wait_for_repeats(process, 3)
    set_back.touch()
    wait_for_repeats(process, 1)
    status = json.loads(folder.run("sweep", "status", "--json", env=env).stdout)
    assert status["seconds_left"] is None or status["seconds_left"] >= 0
    code, error = ended(process)
    assert code == 0, error
    first = folder.store.newest_sweep()
    assert set(ok_repeats(folder).values()) == {1}
    assert len({str(row["started_utc"])[:10] for row in folder.rows()}) == 2
    plan = folder.run("sweep", "plan", "t", env=env)
    assert plan.returncode == 0, plan.stderr
    assert "about -" not in plan.stdout

    again = folder.run(*command, env=env)
    assert again.returncode == 0, again.stderr
    assert "this host's clock is 2" in again.stdout, "about 24 h behind"
    assert folder.store.newest_sweep() != first
    assert folder.store.sweep_ids()[0] == first
    assert len(ok_repeats(folder)) == 8
    assert folder.call("results", "verify").returncode == 0
    assert folder.run("models", "export", "--max-size", "1GB", env=env).stdout == "(none)\n"


@pytest.mark.thorough
@pytest.mark.parametrize("mode", daily(MODES, MODES[-1]))
def test_of_two_drivers_of_one_sweep_the_second_is_refused(folder, mode: str) -> None:
    folder.add_device("sim-a", duration_s=0.3)
    folder.write_spec(["m0", "m1"], ["sim-a"], repeats=5)
    process = start(folder, mode)
    wait_for_repeats(process, 2)
    os.killpg(process.pid, signal.SIGKILL)
    ended(process)
    both = [start(folder, mode, "resume") for _ in range(2)]
    ends = sorted(ended(one, 120) for one in both)
    assert [code for code, _ in ends] == [0, 2], ends
    assert "another process: sweep t-" in ends[1][1]
    assert "-> wait for it" in ends[1][1]
    after = ok_repeats(folder)
    assert len(after) == 10
    assert set(after.values()) == {1}


SOON_LOST = {"RAY_gcs_rpc_server_reconnect_timeout_s": "2"}
HEAD = """
import os, sys
from fleetrank.orchestrator.dispatch.ray_cluster import local_ray
with local_ray():
    import ray
    print(ray.get_runtime_context().gcs_address, os.environ["RAY_AUTH_TOKEN_PATH"], flush=True)
    sys.stdin.read()
"""


def kill_head(starter: int) -> None:
    """Kills the process of Ray that knows all hosts, below the process that started Ray."""
    family = psutil.Process(starter).children(recursive=True)
    (head,) = (process for process in family if process.name().startswith("gcs_server"))
    head.kill()


@pytest.mark.ray
def test_a_head_that_dies_ends_the_sweep_and_a_resume_completes_it(folder) -> None:
    folder.add_device("sim-a", duration_s=1.0)
    folder.write_spec(["m0", "m1"], ["sim-a"], repeats=5)
    env = SOON_LOST | {"TMPDIR": str(folder.home)}
    process = folder.start("sweep", "run", "t", "--progress", "jsonl", env=env)
    wait_for_repeats(process, 2)
    kill_head(process.pid)
    code, error = ended(process)
    assert code == 1, error
    first, remedy = error.splitlines()
    assert first.startswith("fleetrank: ")
    assert "exit code 1" in first
    assert f"then `fleetrank sweep resume {folder.store.newest_sweep()}`" in remedy
    log = Path(remedy.split()[2].rstrip(","))
    assert "GCS" in log.read_text()
    assert folder.record().state == "failed"
    assert 2 <= len(ok_repeats(folder)) < 10
    code, error = ended(start(folder, "", "resume"), 120)
    assert code == 0, error
    after = ok_repeats(folder)
    assert len(after) == 10
    assert set(after.values()) == {1}
    assert folder.run("results", "verify").returncode == 0


@pytest.mark.thorough
@pytest.mark.ray
def test_a_sweep_that_ends_before_ray_notices_its_lost_head_is_complete(folder) -> None:
    folder.add_device("sim-a", duration_s=0.5)
    folder.write_spec(["m0"], ["sim-a"], repeats=3)
    env = {"TMPDIR": str(folder.home)}
    process = folder.start("sweep", "run", "t", "--progress", "jsonl", env=env)
    wait_for_repeats(process, 1)
    kill_head(process.pid)
    code, error = ended(process)
    assert code == 0, error
    assert "GCS" not in error
    assert list(ok_repeats(folder).values()) == [1, 1, 1]


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SupervisedChild]:
    """A process with a Ray of its own; this process has its token, and notices its loss soon."""
    for name, value in (SOON_LOST | {"HOME": str(tmp_path), "RAY_AUTH_MODE": "token"}).items():
        monkeypatch.setenv(name, value)
    child = SupervisedChild((sys.executable, "-P", "-c", HEAD))
    try:
        child.wait(
            deadline_ns=time.perf_counter_ns() + 60 * 10**9,
            is_complete=lambda received: received.endswith(b"\n"),
        )
        yield child
    finally:
        child.end()


@pytest.mark.thorough
@pytest.mark.ray
def test_a_head_that_dies_after_the_last_row_does_not_change_the_exit_code(
    folder,
    head: SupervisedChild,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    address, token = head.stdout.decode().split()
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", token)
    monkeypatch.setattr(tempfile, "tempdir", str(folder.home))

    class KillsTheHead(JsonLines):
        def __call__(self, event: Event) -> None:
            super().__call__(event)
            if isinstance(event, SweepFinished):
                kill_head(head.pid)

    monkeypatch.setattr("fleetrank.orchestrator.progress.JsonLines", KillsTheHead)
    folder.write_spec(["m0"], ["sim-a"], repeats=2)
    words = ["sweep", "run", "t", "--cluster", address, "--progress", "jsonl"]
    code = run(["--workspace", str(folder.root), *words])
    error = capfd.readouterr().err
    assert code == 0, error
    assert "results: " in error
    assert "GCS" not in error
    assert list(ok_repeats(folder).values()) == [1, 1]


@pytest.mark.thorough
@pytest.mark.ray
def test_two_sweeps_at_once_in_one_workspace_share_no_spool(folder) -> None:
    folder.add_device("sim-a", duration_s=0.3)
    folder.write_spec(["m0", "m1"], ["sim-a"], repeats=5)
    both = [start(folder, "") for _ in range(2)]
    for process in both:
        wait_for_repeats(process, 1)
    spools = folder.root / "results/spool"
    assert {path.name for path in spools.iterdir()} == set(folder.store.sweep_ids())
    os.killpg(both[0].pid, signal.SIGKILL)
    ended(both[0])
    code, error = ended(both[1], 120)
    assert code == 0, error
    for sweep_id in folder.store.sweep_ids():
        resumed = folder.run("sweep", "resume", sweep_id, "--progress", "none")
        assert resumed.returncode == 0, resumed.stderr
        rows = list(folder.store.open_journal(sweep_id).rows())
        assert len({(row["cell_key"], row["repeat"]) for row in rows}) == len(rows) == 10
    assert not list(spools.iterdir())
