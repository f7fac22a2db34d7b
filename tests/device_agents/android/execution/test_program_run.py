"""One program on the virtual phone: its end, its time limit, and what is left of it."""

import os
import subprocess
from collections.abc import Iterator

import pytest
from adb_bench import AdbBench
from phone_farm.faults import Fault

from fleetrank.device_agents.android.execution.program_run import (
    CANARY_POLICY,
    RUN_FOLDER,
    TASK_FOLDER,
    PhonePrograms,
    clean_runs,
    run_program,
)
from fleetrank.device_agents.android.execution.program_store import ProgramStore
from fleetrank.device_agents.android.programs.program_output import ProgramCall
from fleetrank.device_agents.contract.failures import failure_from_error
from fleetrank.device_agents.contract.task import canary_task
from fleetrank.device_agents.errors import TimedOutError, TooSlowError
from fleetrank.foundation.vocabulary import ErrorKind

pytestmark = [pytest.mark.adb, pytest.mark.parametrize("adb_server", ["wheel"], indirect=True)]


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the same user that is none of ours."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def has_run_folder(bench: AdbBench) -> bool:
    return (bench.farmed.folder / RUN_FOLDER[1:]).exists()


def test_a_program_runs_pinned_and_leaves_nothing(bench: AdbBench) -> None:
    output = run_program(
        bench.phone,
        ProgramCall(argv=("sh", "-c", "pwd; echo oops >&2; exit 3")),
        affinity=(0, 1),
        timeout_s=20,
    )
    assert (output.exit_code, output.stderr) == (3, "oops\n")
    assert output.stdout.strip() == TASK_FOLDER
    refused = run_program(bench.phone, ProgramCall(argv=("true",)), affinity=(30,), timeout_s=20)
    assert "affinity: Invalid argument" in refused.stderr
    clean_runs(bench.phone)
    assert not has_run_folder(bench)


def programs_of(bench: AdbBench) -> PhonePrograms:
    return PhonePrograms(
        phone=bench.phone,
        store=ProgramStore(),
        registered={"benchmark_model": "1", "executor_runner": "2"},
        stop_requested=lambda: False,
    )


SLEEP = ("sleep", f"60.{os.getpid()}")
"""Not that of another worker of pytest."""


def is_running() -> bool:
    return subprocess.run(["pgrep", "-fx", " ".join(SLEEP)], check=False).returncode == 0


def test_a_program_that_a_closed_connection_leaves_is_ended_by_the_next_cleaning(
    bench: AdbBench,
) -> None:
    """adbd sends SIGHUP to the shell of a command, and to nothing else."""
    bench.inject(Fault.HANGUP_ONLY)
    with pytest.raises(TimedOutError):
        run_program(bench.phone, ProgramCall(argv=SLEEP), affinity=None, timeout_s=1.0)
    assert is_running()
    clean_runs(bench.phone)
    assert not is_running()
    assert not has_run_folder(bench)


def test_a_program_at_work_at_its_time_limit_is_not_tried_again(bench: AdbBench) -> None:
    task = canary_task("a", "b", None, CANARY_POLICY, 1.0)
    with pytest.raises(TooSlowError, match="within 1 s") as caught:
        programs_of(bench).run(task, ProgramCall(argv=SLEEP))
    failure = failure_from_error(caught.value, "timed")
    assert (failure.kind, failure.is_transient) == (ErrorKind.TIMED_OUT, False)
    clean_runs(bench.phone)
    assert not is_running()
    assert not has_run_folder(bench)


def test_a_number_that_is_another_programs_by_now_is_left_alone(
    bench: AdbBench, stranger: subprocess.Popen[bytes]
) -> None:
    folder = bench.farmed.folder / TASK_FOLDER[1:]
    folder.mkdir(parents=True)
    (folder / "pid").write_text(f"{stranger.pid}\n")
    clean_runs(bench.phone)
    assert stranger.poll() is None
    assert not has_run_folder(bench)


def test_a_number_that_is_none_ends_nothing(bench: AdbBench) -> None:
    folder = bench.farmed.folder / TASK_FOLDER[1:]
    for content in ("", "1; touch pwned", "-1", "x\n"):
        folder.mkdir(parents=True)
        (folder / "pid").write_text(content)
        clean_runs(bench.phone)
        assert not has_run_folder(bench)
    assert not list(bench.farmed.folder.rglob("pwned"))


def test_what_a_crash_left_running_is_ended(bench: AdbBench) -> None:
    folder = bench.farmed.folder / TASK_FOLDER[1:]
    folder.mkdir(parents=True)
    with subprocess.Popen(["sleep", "60"], cwd=folder) as left:
        (folder / "pid").write_text(f"{left.pid}\n")
        clean_runs(bench.phone)
        assert left.wait(10) == -9


def test_a_row_names_the_program_that_made_it_alone(bench: AdbBench) -> None:
    task = canary_task("a", "b", None, CANARY_POLICY, 60.0)
    assert programs_of(bench).version_of(task) == {"benchmark_model_sha256": "1"}
