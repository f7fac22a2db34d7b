"""What can go wrong between a host and a board, each against a real sshd and a real worker."""

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from daily import daily
from older_python import find_python
from ssh_board import SshBoard, ssh_board, why_no_mounts
from waiting import wait_until

from fleetrank.device_agents.board import agent as board_agent
from fleetrank.device_agents.board.ssh import SshConnection
from fleetrank.device_agents.contract.measurement import Failure, Measurement
from fleetrank.device_agents.contract.task import MeasureTask, OptionValue
from fleetrank.foundation.vocabulary import ErrorKind, Runtime, Status
from tests.device_agents.conftest import QUICK, make_task

pytestmark = pytest.mark.slow


def long_task(path: Path, seconds: float, **changes: object) -> MeasureTask:
    policy = replace(QUICK, min_runs=10**6, max_samples=10**6, max_time_s=seconds)
    return make_task(path, Runtime.ONNX, policy=policy, is_trusted=True, **changes)


def failure_of(seen: Measurement) -> Failure:
    assert seen.status is Status.FAILED
    assert seen.failure is not None
    return seen.failure


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=2) as found:
        yield found


Begin = Callable[..., "Future[Measurement]"]


@pytest.fixture
def begin(board: SshBoard, onnx_file: Path, pool: ThreadPoolExecutor) -> Begin:
    """Starts a repeat of some seconds; returns when its worker times the model."""

    def start(
        seconds: float, *, timeout_s: float = 60.0, **options: OptionValue
    ) -> "Future[Measurement]":
        agent = board.agent(**options)
        warm = agent.measure(make_task(onnx_file, Runtime.ONNX, is_trusted=True))
        assert warm.status is Status.OK, warm.failure
        found = pool.submit(agent.measure, long_task(onnx_file, seconds, timeout_s=timeout_s))
        wait_until(lambda: bool(board.processes("worker")), "the worker", 60.0)
        return found

    return start


@pytest.mark.thorough
def test_a_cut_in_a_push_leaves_nothing_half(board: SshBoard, tmp_path: Path) -> None:
    path = tmp_path / "large.onnx"
    path.write_bytes(bytes(range(256)) * 40_000)
    agent = board.agent()
    agent.probe()
    board.relay.cut_after(2_000_000)
    found = failure_of(agent.measure(make_task(path, Runtime.ONNX)))
    assert (found.kind, found.is_transient) == (ErrorKind.DEVICE_LOST, True)
    assert board.files == []
    board.relay.restore()
    wait_until(lambda: not board.processes("join"), "the board to notice the end", 30.0)
    again = failure_of(agent.measure(make_task(path, Runtime.ONNX)))
    assert again.kind is ErrorKind.BAD_ARTIFACT, "it arrived, and is no model"
    assert [path.stat().st_size for path in board.files] == [256 * 40_000]


def test_what_was_measured_while_the_line_was_cut_is_fetched(board: SshBoard, begin: Begin) -> None:
    found = begin(3.0)
    board.relay.cut()
    wait_until(lambda: len(board.kept) == 1, "the result on the board", 60.0)
    board.relay.restore()
    assert_measured_to_its_end(board, found)


@pytest.mark.thorough
def test_a_repeat_goes_on_when_the_connection_ends(board: SshBoard, begin: Begin) -> None:
    found = begin(5.0)
    board.relay.reset()
    assert_measured_to_its_end(board, found)


def assert_measured_to_its_end(board: SshBoard, found: "Future[Measurement]") -> None:
    seen = found.result(120.0)
    assert seen.status is Status.OK, seen.failure
    assert seen.stop_reason == "max_time"
    wait_until(lambda: board.kept == [], "the acknowledgement", 30.0)


@pytest.mark.thorough
def test_a_board_that_loses_power_is_lost_for_this_repeat(board: SshBoard, begin: Begin) -> None:
    found = begin(300.0)
    board.stop()
    board.start()
    failure = failure_of(found.result(120.0))
    assert (failure.kind, failure.is_transient) == (ErrorKind.DEVICE_LOST, True)
    assert "has ended" in failure.message
    assert board.kept == []


@pytest.mark.thorough
def test_a_repeat_of_a_driver_that_died_is_adopted(
    board: SshBoard, onnx_file: Path, pool: ThreadPoolExecutor
) -> None:
    stop = threading.Event()
    task = long_task(onnx_file, 5.0, task_id="s/c/0/0")
    first = pool.submit(board.agent().measure, task, stop.is_set)
    wait_until(lambda: bool(board.processes("worker")), "the worker", 60.0)
    (worker,) = board.processes("worker")
    second = pool.submit(board.agent().measure, task)
    assert second.result(120.0).status is Status.OK
    assert first.result(120.0).samples_ns == second.result().samples_ns, "measured once"
    assert not worker.is_running()


@pytest.mark.thorough
def test_a_board_that_hangs_is_given_up(
    board: SshBoard, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_MARGIN_S", "TURN_S"):
        monkeypatch.setattr(board_agent, name, 1.0)
    found = begin(300.0, timeout_s=5.0)
    hung = [*board.processes("host"), *board.processes("worker")]
    for process in hung:
        process.suspend()
    failure = failure_of(found.result(120.0))
    for process in hung:
        process.kill()
    assert (failure.kind, failure.is_transient) == (ErrorKind.TIMED_OUT, True)


@pytest.mark.thorough
def test_a_stop_ends_the_worker_there(board: SshBoard, onnx_file: Path) -> None:
    stop = threading.Event()
    agent = board.agent()

    def ask() -> bool:
        if board.processes("worker"):
            stop.set()
        return stop.is_set()

    found = failure_of(agent.measure(long_task(onnx_file, 300.0), ask))
    assert found.kind is ErrorKind.INTERRUPTED
    wait_until(lambda: not board.processes("worker"), "the worker's end")


@pytest.mark.thorough
def test_a_full_disk_is_a_row(short_runtime: None, tmp_path: Path) -> None:
    if (reason := why_no_mounts()) is not None:
        pytest.skip(reason)
    path = tmp_path / "large.onnx"
    path.write_bytes(bytes(6_000_000))
    script = 'mount -t tmpfs -o size=5m tmpfs "$1"; shift; exec "$@"'
    with ssh_board(is_started=False) as board:
        board.before = ["unshare", "--mount", "sh", "-ec", script, "sh", str(board.home)]
        board.start()
        found = failure_of(board.agent().measure(make_task(path, Runtime.ONNX)))
    assert (found.kind, found.is_transient) == (ErrorKind.DISK_FULL, False)
    assert "needs 5 MiB" in found.message


@pytest.mark.thorough
def test_rows_have_the_times_of_this_host(short_runtime: None, onnx_file: Path) -> None:
    """The board's clock is three years slow, as of one without a battery."""
    late = """
import datetime, time
_now, _shift = time.time, 3 * 365 * 86400
time.time = lambda: _now() - _shift
class _Slow(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return super().now(tz) - datetime.timedelta(seconds=_shift)
datetime.datetime = _Slow
"""
    with ssh_board(login='PYTHONPATH="$HOME/slow"; export PYTHONPATH') as board:
        (board.home / "slow").mkdir()
        (board.home / "slow" / "sitecustomize.py").write_text(late)
        begun = datetime.now(UTC).isoformat()
        asked = [sys.executable, "-c", "import datetime as d; print(d.datetime.now().year)"]
        year = int(SshConnection(board.target).run(asked, timeout_s=60.0).stdout)
        assert year < datetime.now(UTC).year
        seen = board.agent().measure(make_task(onnx_file, Runtime.ONNX, is_trusted=True))
    assert seen.status is Status.OK, seen.failure
    assert seen.started_utc is not None
    assert seen.finished_utc is not None
    assert begun <= seen.started_utc <= seen.finished_utc <= datetime.now(UTC).isoformat()


@pytest.mark.parametrize(
    ("python", "said"),
    daily([("no-such-python", "no-such-python"), ("python3.9", "needs 3.10")], "python3.9"),
)
def test_a_python_that_cannot_be_used_is_named(
    board: SshBoard, onnx_file: Path, python: str, said: str
) -> None:
    if python == "python3.9":
        python = find_python("3.9")
    found = failure_of(board.agent(python=python).measure(make_task(onnx_file, Runtime.ONNX)))
    assert (found.kind, found.is_transient) == (ErrorKind.DEVICE_LOST, False)
    assert said in found.message
    assert "`python=PATH`" in found.remedy


@pytest.mark.thorough
def test_a_login_that_prints_does_not_disturb(short_runtime: None, onnx_file: Path) -> None:
    with ssh_board(login="echo 'Welcome to the board'; echo fleetrank >&2") as board:
        seen = board.agent().measure(make_task(onnx_file, Runtime.ONNX, is_trusted=True))
    assert seen.status is Status.OK, seen.failure
