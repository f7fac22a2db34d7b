"""The host of a board: it judges the board, runs the canary, and one process serves its folder."""

import contextlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from waiting import wait_until

from fleetrank.device_agents.board.board_state import BoardOptions
from fleetrank.device_agents.board.host_calls import device_there
from fleetrank.device_agents.board.there import host_process, judged_agent
from fleetrank.device_agents.board.there.board_host import BoardHost
from fleetrank.device_agents.board.there.host_process import HostProcess
from fleetrank.device_agents.board.there.join import GREETING, SOCKET
from fleetrank.device_agents.board.there.judged_agent import JudgedAgent
from fleetrank.device_agents.contract.failures import interrupted
from fleetrank.device_agents.contract.measurement import Conditions, Failure, Measurement, failed
from fleetrank.device_agents.contract.task import BlockPolicy, CanaryTask, MeasureTask
from fleetrank.device_agents.hosts.messages import DeviceTask, FilePart, PollRequest
from fleetrank.foundation.codec import to_plain
from fleetrank.foundation.lease import give_up_at_once, open_lease, wait_for_lock
from fleetrank.foundation.vocabulary import ErrorKind, Origin, Status
from tests.device_agents.conftest import plain_task

BLOCKS = BlockPolicy(block_s=0.02, left_out_runs=2, min_blocks=3, max_blocks=4)
OPTIONS = BoardOptions(ssh="board", max_temp_c=1000.0)


class Counting:
    """An agent that measures nothing, and keeps what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.wants_finish = False
        self.is_free = threading.Event()
        self.is_free.set()

    def longest_s(self, _task: MeasureTask) -> float:
        return 60.0

    def measure(self, task: MeasureTask, _stop: Callable[[], bool]) -> Measurement:
        self.asked.append(task.artifact_path or task.task_id)
        self.is_free.wait()
        return Measurement(
            task_id=task.task_id, status=Status.OK, origin=Origin.MEASURED, samples_ns=(100,),
            conditions_before=Conditions(), conditions_after=Conditions(),
        )  # fmt: skip

    def measure_round(
        self,
        tasks: Sequence[MeasureTask],
        stop: Callable[[], bool],
        finish: Callable[[], bool] = lambda: False,
    ) -> list[Measurement]:
        self.wants_finish = finish()
        return [self.measure(task, stop) for task in tasks]


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Counting:
    """The agent of this board, whose own readings are fine."""
    found = Counting()
    monkeypatch.setattr(judged_agent, "local_agent", lambda _gpu: found)
    monkeypatch.setattr(judged_agent, "read_state_text", dict)
    return found


def judged(**changes: object) -> JudgedAgent:
    return JudgedAgent(dict(device_there(replace(OPTIONS, **changes)).options))


def failure_of(found: Measurement) -> Failure:
    assert found.failure is not None
    return found.failure


@pytest.mark.parametrize(
    ("before", "after", "order"),
    [(True, False, "canary t"), (False, True, "t canary"), (False, False, "t")],
)
def test_a_canary_runs_before_and_after_the_cell_where_it_is_due(
    agent: Counting, before: bool, after: bool, order: str
) -> None:
    canary = CanaryTask(
        artifact_path="canary", artifact_sha256="0", affinity=None, reference_ns=100, spread=None,
        runs_before=before, runs_after=after,
    )  # fmt: skip
    found = judged().measure(plain_task(canary=canary, artifact_path="t"))
    assert agent.asked == order.split()
    stated = (found.conditions_before.canary_ns, found.conditions_after.canary_ns)
    assert stated == (100 if before else None, 100 if after else None)
    slow = replace(canary, runs_before=True, reference_ns=50)
    failure = failure_of(judged().measure(plain_task(canary=slow)))
    assert (failure.kind, failure.wait is None) == (ErrorKind.UNFIT_CONDITIONS, False)


def test_another_board_and_one_that_is_not_fit_measure_nothing(
    agent: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judged_agent, "read_identity", lambda: "1" * 16)
    failure = failure_of(judged(board_hash="0" * 16).measure(plain_task()))
    assert (failure.kind, failure.is_transient) == (ErrorKind.DEVICE_LOST, False)
    zone = "sys/class/thermal/thermal_zone0"
    hot = {f"{zone}/type": "cpu", f"{zone}/temp": "95000"}
    monkeypatch.setattr(judged_agent, "read_state_text", lambda: hot)
    failure = failure_of(judged(max_temp_c=70.0).measure(plain_task()))
    assert failure.wait is not None
    assert agent.asked == []


def test_a_round_is_told_that_it_is_to_end(agent: Counting) -> None:
    judged().measure_round([plain_task(blocks=BLOCKS)], lambda: False, lambda: True)
    assert agent.wants_finish


@pytest.fixture
def process(
    agent: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[threading.Thread]:
    """The process of a host, as a thread here; it looks often whether it is needed."""
    monkeypatch.setattr(host_process, "_LOOK_S", 0.05)
    thread = threading.Thread(target=HostProcess(tmp_path).run, daemon=True)
    thread.start()
    wait_until(lambda: listens(tmp_path), "the host")
    yield thread
    (tmp_path / SOCKET).unlink(missing_ok=True)
    agent.is_free.set()
    thread.join(60.0)
    assert not thread.is_alive(), "without its socket it ends"


def listens(folder: Path) -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as line:
        line.connect(str(folder / SOCKET))
        return True
    return False


def call(folder: Path, method: str, *arguments: object, n_bytes: int = 0) -> dict[str, object]:
    request = {"method": method, "arguments": arguments, "n_bytes": n_bytes}
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(folder / SOCKET))
        line.sendall(json.dumps(request).encode() + b"\n")
        line.shutdown(socket.SHUT_WR)
        with line.makefile("rb") as stream:
            assert stream.read(1) == GREETING
            return dict(json.loads(stream.read().partition(b":")[2]))


@pytest.mark.slow
def test_a_process_answers_and_names_what_is_wrong(
    process: threading.Thread, tmp_path: Path
) -> None:
    assert call(tmp_path, "missing", [f"{0:064}.onnx"])["answer"] == [f"{0:064}.onnx"]
    for method, arguments in (("missing", [["../x"]]), ("poll", [3]), ("_keep", [])):
        assert "error" in call(tmp_path, method, *arguments)
    part = FilePart(name=f"{0:064}.onnx", delivery="0a", size_bytes=5, content=b"", is_last=False)
    assert "error" in call(tmp_path, "receive", to_plain(part), n_bytes=5), "the line ended"
    assert list((tmp_path / "files").iterdir()) == []
    assert process.is_alive()


@pytest.mark.slow
@pytest.mark.parametrize("is_hung", [True, False])
def test_a_process_ends_when_it_is_idle_or_an_agent_hangs(
    agent: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_hung: bool
) -> None:
    monkeypatch.setattr(host_process, "_LOOK_S", 0.05)
    monkeypatch.setattr(host_process, "_IDLE_S", 3600.0 if is_hung else 0.2)
    monkeypatch.setattr(host_process, "_HUNG_S", 0.1)
    monkeypatch.setattr(JudgedAgent, "longest_s", lambda *_: 0.1)
    process = HostProcess(tmp_path)
    if is_hung:
        agent.is_free.clear()
        task = plain_task(artifact_path="")
        process._host.accept([DeviceTask(spec=device_there(OPTIONS), task=task)])
    process.run()
    agent.is_free.set()


@pytest.mark.slow
def test_what_a_host_of_other_code_left_is_removed_unless_it_runs(tmp_path: Path) -> None:
    for name in ("host-1", "host-2", "host-3"):
        (tmp_path / name).mkdir()
    with open_lease(tmp_path / "host-2" / host_process._LOCK) as lock:
        assert wait_for_lock(lock, give_up_at_once)
        host_process._remove_older(tmp_path / "host-1")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["host-1", "host-2"]


def test_a_task_that_was_stopped_is_measured_again(
    agent: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = plain_task(task_id="cpu:s/c", artifact_path="")
    given = DeviceTask(spec=device_there(OPTIONS), task=task)
    host, stopped = BoardHost(tmp_path), failed(task.task_id, interrupted())
    monkeypatch.setattr(agent, "measure", lambda *_: stopped)
    host.accept([given])
    assert host.is_idle(60.0)
    monkeypatch.undo()
    monkeypatch.setattr(judged_agent, "local_agent", lambda _gpu: agent)
    host.accept([given])
    assert host.is_idle(60.0)
    found = host.poll(PollRequest(sweep_id="cpu:s", session="1")).measurements
    assert [one.status for one in found] == [Status.OK]


_NO_PACKAGES = """
import sys
sys.modules |= dict.fromkeys(["orjson", "numpy", "psutil", "pydantic"])
import fleetrank.device_agents.board.there.host_process
assert "fleetrank.device_agents.cpu" not in sys.modules
"""


@pytest.mark.slow
def test_a_host_starts_without_any_package() -> None:
    subprocess.run([sys.executable, "-c", _NO_PACKAGES], check=True)
