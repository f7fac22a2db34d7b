"""What a sweep cannot go on with ends it by a message and a remedy; nothing measured is lost."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest
from daily import daily
from full_disk import no_room_beyond
from waiting import MODES, ended, ok_repeats, start, wait_for_repeats
from wording import has

from fleetrank.analysis.stored.sweep_record import SweepRecord
from fleetrank.orchestrator.sweep import sweep_status

ALL = ("m0", "m1", "m2", "m3")
KIB = 1024


def test_a_limit_on_the_size_of_files_is_said_before_ray_meets_it(folder) -> None:
    folder.write_spec(["m0"], ["sim-a"], repeats=1)
    with no_room_beyond(40 * KIB):
        refused = folder.call("sweep", "run", "t")
    assert refused.returncode == 1, refused.stderr
    assert f"{40 * KIB}, and Ray needs" in refused.stderr
    assert "-> raise the limit" in refused.stderr
    # Its row fits into the journal, and no Parquet file does.
    with no_room_beyond(16 * KIB):
        unpublished = folder.call("sweep", "resume", "--inline")
    assert unpublished.returncode == 1, unpublished.stdout
    assert "parquet cannot be written" in unpublished.stderr
    assert "sweep resume t-" in unpublished.stderr
    assert folder.call("sweep", "resume", "--inline").returncode == 0
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
    assert moved.call("results", "verify").returncode == 0


def test_after_a_clock_that_jumped_back_the_next_sweep_is_the_newest_and_says_so(folder) -> None:
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    first = f"t-{tomorrow:%Y%m%dT%H%M%S}-0a1b"
    folder.store.create_sweep(SweepRecord(sweep_id=first, started_utc=tomorrow.isoformat()))
    folder.write_spec(["m0"], ["sim-a"], repeats=1)
    done = folder.call("sweep", "run", "t", "--inline", "--progress", "jsonl")
    assert done.returncode == 0, done.stderr
    assert "this host's clock is 2" in done.stdout, "about 24 h behind"
    assert sweep_status._seconds_left([tomorrow, tomorrow], n_left=3) is None
    assert folder.store.sweep_ids()[0] == first
    assert folder.store.newest_sweep() != first
    assert list(ok_repeats(folder).values()) == [1]


SOON_LOST = {"RAY_gcs_rpc_server_reconnect_timeout_s": "2"}


def kill_head(starter: int) -> None:
    """Kills the process of Ray that knows all hosts, below the process that started Ray."""
    family = psutil.Process(starter).children(recursive=True)
    (head,) = (process for process in family if process.name().startswith("gcs_server"))
    head.kill()


@pytest.mark.thorough
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
    assert folder.call("results", "verify").returncode == 0
