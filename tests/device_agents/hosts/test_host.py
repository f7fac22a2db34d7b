"""What a host does with tasks, what it reports to whom, and for what its devices wait."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_onnx import save_tiny_onnx
from waiting import wait_until

from fleetrank.device_agents.board.there.board_host import BoardHost
from fleetrank.device_agents.contract.agent import DeviceFacts, StopRequested
from fleetrank.device_agents.contract.failures import failure_from_error
from fleetrank.device_agents.contract.kind import HostShare
from fleetrank.device_agents.contract.measurement import Measurement, failed
from fleetrank.device_agents.contract.task import (
    BlockPolicy,
    Execution,
    MeasurePolicy,
    MeasureTask,
    RepeatLimits,
)
from fleetrank.device_agents.errors import NotFitError
from fleetrank.device_agents.hold import Reservation
from fleetrank.device_agents.hosts.host import Host
from fleetrank.device_agents.hosts.messages import DeviceSpec, DeviceTask, PollReply, PollRequest
from fleetrank.device_agents.power import Power
from fleetrank.device_agents.registry import create_agent
from fleetrank.device_agents.simulated import SimulatedAgent
from fleetrank.foundation.lease import Use, give_up_at_once, host_lease
from fleetrank.foundation.reading_beside import reading_beside_measurements
from fleetrank.foundation.small_file import file_sha256
from fleetrank.foundation.vocabulary import ErrorKind, Flag, Origin, Runtime, Status

_LIMIT_S = 60.0
QUICK = DeviceSpec(name="quick", kind="simulated")
SLOW = DeviceSpec(name="slow", kind="simulated", options=(("duration_s", 20.0),))
QUIET = DeviceSpec(name="d", kind="simulated", share=HostShare.ALONE)
HOLD = """
from fleetrank.foundation.lease import host_lease
with host_lease("another sweep"):
    print("held", flush=True)
    input()
"""
TASK = MeasureTask(
    task_id="s/c/0/0",
    artifact_path=f"/nowhere/{'0' * 64}.onnx",
    artifact_sha256="0" * 64,
    execution=Execution(runtime=Runtime.ONNX, backend="cpu"),
    macs_and_parameters=(1_000_000, 1_000),
    limits=RepeatLimits(timeout_s=0.5),
)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def order(number: int = 0, spec: DeviceSpec = QUICK, sweep: str = "s") -> DeviceTask:
    return DeviceTask(spec=spec, task=replace(TASK, task_id=f"{sweep}/c/{number}/0"))


def ask(host: Host, session: str = "a", **changes: object) -> PollReply:
    fields: dict[str, object] = {"sweep_id": "s", "session": session, "wait_s": 10.0}
    return host.poll(PollRequest(**(fields | changes)))


def ids(reply: PollReply) -> list[str]:
    return [measurement.task_id for measurement in reply.measurements]


def measured(host: Host, given: DeviceTask) -> Measurement:
    """Measures a task and waits until nothing runs."""
    sweep_id = given.task.task_id[0]
    host.accept([given], has_files=True)
    while given.task.task_id in dict(ask(host, sweep_id=sweep_id, wait_s=0.1).running):
        pass
    found = ask(host, "new", sweep_id=sweep_id, wait_s=0.0).measurements
    return next(one for one in found if one.task_id == given.task.task_id)


def kind_of(found: Measurement) -> ErrorKind | None:
    return found.failure and found.failure.kind


def test_a_result_is_told_once_per_session_and_again_in_a_new_one(host: Host) -> None:
    host.accept([order()], has_files=True)
    assert ids(ask(host)) == ["s/c/0/0"]
    assert ids(ask(host, wait_s=0.0)) == []
    assert ids(ask(host, "b", wait_s=0.0)) == ["s/c/0/0"]
    assert ids(ask(host, "b", acknowledged=("s/c/0/0",), wait_s=0.0)) == []
    assert ids(ask(host, "c", wait_s=0.0)) == []


def test_many_results_are_told_in_several_answers(host: Host) -> None:
    ask(host, wait_s=0.0)
    host.accept([order(number) for number in range(150)], has_files=True)
    assert host.is_idle(_LIMIT_S)
    told = [ids(ask(host, wait_s=0.0)) for _ in range(3)]
    assert [len(part) for part in told] == [100, 50, 0]
    assert len({task_id for part in told for task_id in part}) == 150
    assert len(ids(ask(host, "b", wait_s=0.0))) == 150, "a driver that asks anew is told all"


def test_an_order_sent_twice_is_measured_once(host: Host) -> None:
    host.accept([order(0, SLOW), order(0, SLOW)], has_files=True)
    host.accept([order(0, SLOW)], has_files=True)
    assert dict(ask(host, wait_s=0.0).running) == {"s/c/0/0": "slow"}
    host.interrupt("s")
    assert ids(ask(host)) == ["s/c/0/0"]
    host.accept([order(0, SLOW)], has_files=True)
    assert host.is_idle(0.0)


@pytest.fixture
def cooling(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the simulated device is fit, for each question in turn; then it is."""
    fit: list[bool] = []
    measure = SimulatedAgent.measure

    def measure_if_fit(
        agent: SimulatedAgent, task: MeasureTask, stop: StopRequested
    ) -> Measurement:
        if not fit or fit.pop(0):
            return measure(agent, task, stop)
        error = NotFitError("it is hot", "let it cool down")
        return failed(task.task_id, failure_from_error(error, "start"), Origin.SIMULATED)

    monkeypatch.setattr(SimulatedAgent, "measure", measure_if_fit)
    return fit


def test_a_task_whose_device_was_not_fit_can_be_sent_again(host: Host, cooling: list[bool]) -> None:
    cooling += [False, False, True]
    reasons = []
    for _ in range(3):
        host.accept([order()], has_files=True)
        (found,) = ask(host).measurements
        reasons.append(None if found.failure is None else found.failure.message)
        assert ids(ask(host, wait_s=0.0)) == []
    assert reasons == ["it is hot", "it is hot", None]
    assert host.describe().n_kept == 1
    host.accept([order()], has_files=True)
    assert host.is_idle(0.0), "measured once"


def test_an_answer_that_a_device_is_not_fit_is_offered_again_and_lost_with_its_process(
    host: Host, tmp_path: Path, cooling: list[bool]
) -> None:
    cooling += [False]
    host.accept([order()], has_files=True)
    assert ids(ask(host)) == ["s/c/0/0"]
    assert ids(ask(host, "b", wait_s=0.0)) == ["s/c/0/0"]
    assert ids(ask(Host(tmp_path), wait_s=0.0)) == []
    assert ids(ask(host, "b", acknowledged=("s/c/0/0",), wait_s=0.0)) == []
    assert ids(ask(host, "c", wait_s=0.0)) == []


def test_a_new_process_offers_what_the_old_one_had_finished(tmp_path: Path) -> None:
    old = Host(tmp_path)
    old.accept([order(), order(1, SLOW)], has_files=True)
    assert ids(ask(old)) == ["s/c/0/0"]
    new = Host(tmp_path)
    new.accept([order()], has_files=True)
    answer = ask(new, wait_s=0.0)
    assert (ids(answer), dict(answer.running)) == (["s/c/0/0"], {}), "it is not measured again"


def test_one_sweep_is_interrupted_and_the_other_goes_on(host: Host) -> None:
    other = replace(SLOW, name="other")
    host.accept([order(0, SLOW), order(0, other, "t")], has_files=True)
    host.interrupt("s")
    (found,) = ask(host).measurements
    assert kind_of(found) is ErrorKind.INTERRUPTED
    assert dict(ask(host, sweep_id="t", wait_s=0.0).running) == {"t/c/0/0": "other"}
    host.interrupt("t")
    assert host.is_idle(_LIMIT_S)


@pytest.mark.parametrize("kind", [Host, BoardHost])
def test_a_round_waits_for_the_files_of_all_its_tasks_and_other_tasks_start(
    kind: type[Host], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoardHost, "_create_agent", Host._create_agent)
    host, names = kind(tmp_path), [f"{number:064}.onnx" for number in range(2)]
    (tmp_path / "files" / names[0]).touch()
    tasks = [replace(TASK, task_id=f"s/{name}", artifact_path=names[name == "c"]) for name in "abc"]
    members = tuple(task.task_id for task in tasks[1:])
    tasks[1:] = [replace(task, members=members) for task in tasks[1:]]
    given = [DeviceTask(spec=QUICK, task=task) for task in tasks]
    assert host.accept(given, has_files=False) == [names[1]]
    assert ids(ask(host)) == ["s/a"]
    assert host.is_idle(0.0)
    (tmp_path / "files" / names[1]).touch()
    assert host.accept(given, has_files=False) == []
    assert host.is_idle(_LIMIT_S)
    assert set(ids(ask(host, wait_s=0.0))) == {*members}


def test_a_waiting_question_is_answered_as_soon_as_there_is_something(host: Host) -> None:
    replies: list[PollReply] = []
    thread = threading.Thread(target=lambda: replies.append(ask(host, wait_s=30.0)))
    started_s = time.perf_counter()
    thread.start()
    wait_until(lambda: bool(host._sessions), "the question", _LIMIT_S)
    host.accept([order()], has_files=True)
    thread.join(20.0)
    assert time.perf_counter() - started_s < 10
    assert replies[0].measurements[0].status is Status.OK


def test_a_figure_that_no_spool_can_hold_is_a_failed_attempt(host: Host) -> None:
    eternal = replace(QUICK, options=(("overhead_us", 1e30),))
    assert kind_of(measured(host, order(0, eternal))) is ErrorKind.INTERNAL
    assert host.is_idle(0.0)


def test_a_file_that_is_gone_when_it_is_needed_is_a_failed_attempt(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host._files, "missing", lambda names: [])
    host.accept([order()], has_files=False)
    (found,) = ask(host).measurements
    assert found.status is Status.FAILED


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    """Another process of this machine that has its lease until it reads a line."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_it_measures_when_the_other_has_finished_and_the_wait_does_not_count(
    host: Host, other: subprocess.Popen[str]
) -> None:
    host.accept([order(0, QUIET)], has_files=True)
    assert not host.is_idle(1.0), "longer than its time limit, and still waiting"
    assert not host.overdue(0.0)
    free = measured(host, order(1, replace(QUICK, name="free"), "t"))
    assert free.status is Status.OK, "a device with a processor of its own does not wait"
    other.communicate("go\n")
    (found,) = ask(host, wait_s=_LIMIT_S).measurements
    assert found.status is Status.OK
    assert 0.9 < (found.waited_s or 0.0) < _LIMIT_S
    assert (free.waited_s or 0.0) < 0.9


@pytest.mark.parametrize(
    ("share", "free"),
    [(HostShare.ALONE, ()), (HostShare.BESIDE, (True,)), (HostShare.NONE, (True, False))],
)
def test_a_device_has_as_much_of_its_host_as_it_needs(
    share: HostShare, free: tuple[bool, ...], host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`free` are the kinds of lease, shared or not, that others get meanwhile."""
    found: list[bool] = []
    measure = SimulatedAgent.measure

    def try_both(agent: SimulatedAgent, task: MeasureTask, stop: StopRequested) -> Measurement:
        for use in (Use.BESIDE, Use.TIMES):
            with host_lease("other", use=use, give_up=give_up_at_once) as is_held:
                found.extend([use is Use.BESIDE] if is_held else [])
        return measure(agent, task, stop)

    monkeypatch.setattr(SimulatedAgent, "measure", try_both)
    assert measured(host, order(0, replace(QUICK, share=share))).status is Status.OK
    assert tuple(found) == free


@pytest.mark.parametrize("end", [Host.interrupt, Host.finish_rounds])
def test_a_request_to_stop_ends_a_wait_for_the_host(
    host: Host, other: subprocess.Popen[str], end: Callable[[Host, str], None]
) -> None:
    host.accept([order(0, QUIET)], has_files=True)
    end(host, "s")
    (found,) = ask(host, wait_s=_LIMIT_S).measurements
    assert kind_of(found) is ErrorKind.INTERRUPTED


def test_a_long_wait_for_another_sweep_names_it(host: Host, other: subprocess.Popen[str]) -> None:
    found = measured(host, order(0, QUIET))
    assert kind_of(found) is ErrorKind.UNFIT_CONDITIONS
    assert found.failure is not None
    assert found.failure.wait is not None
    assert "used by another sweep" in found.failure.message
    assert found.waited_s is not None
    assert found.waited_s > 1.0
    other.communicate("go\n")
    assert measured(host, order(1, QUIET)).status is Status.OK


def test_a_row_measured_beside_reading_says_so(host: Host) -> None:
    with reading_beside_measurements(limit_s=0.0):
        assert Flag.BESIDE_READING in measured(host, order(0, QUIET)).flags
        assert Flag.BESIDE_READING not in measured(host, order(1)).flags
    assert Flag.BESIDE_READING not in measured(host, order(2, QUIET)).flags


def test_one_device_measures_for_one_sweep_at_a_time_and_the_other_waits_its_turn(
    host: Host,
) -> None:
    slow = replace(QUICK, options=(("duration_s", 0.4),))
    started_s = time.perf_counter()
    limits = RepeatLimits(timeout_s=60.0)
    tasks = [order(0, slow, sweep) for sweep in ("s", "t")]
    host.accept(
        [replace(one, task=replace(one.task, limits=limits)) for one in tasks], has_files=True
    )
    assert host.is_idle(_LIMIT_S)
    assert time.perf_counter() - started_s >= 0.8
    found = [one for sweep in ("s", "t") for one in ask(host, sweep_id=sweep).measurements]
    assert [one.status for one in found] == [Status.OK, Status.OK]


def test_a_task_whose_agent_does_not_come_back_in_time_is_overdue(host: Host) -> None:
    task = replace(TASK, limits=RepeatLimits(timeout_s=0.05))
    host.accept([DeviceTask(spec=SLOW, task=task)], has_files=True)
    wait_until(lambda: host.overdue(0.1) == [task.task_id], "the task", _LIMIT_S)
    assert host.overdue(60.0) == []
    host.interrupt("another sweep")
    assert not host.is_idle(0.2)
    host.interrupt("s")
    assert host.is_idle(_LIMIT_S)


def test_a_reservation_that_is_lost_ends_the_repeat(host: Host, tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    ours.touch()
    reserve = Reservation(command=("true",), renew=("test", "-e", str(ours)), every_s=0.05)
    lost = order(0, replace(SLOW, reserve=reserve))
    host.accept(
        [replace(lost, task=replace(lost.task, limits=RepeatLimits(timeout_s=60.0)))],
        has_files=True,
    )
    assert not host.is_idle(0.3)
    ours.unlink()
    (found,) = ask(host).measurements
    assert kind_of(found) is ErrorKind.DEVICE_LOST


@pytest.mark.slow
def test_the_power_is_switched_by_a_command_while_nothing_runs_on_its_unit(
    host: Host, tmp_path: Path
) -> None:
    done, reserve = tmp_path / "done $(x)", Reservation(command=("test", "!", "-e", "/gone"))
    board = replace(QUICK, power=Power(cycle=("touch", str(done))), reserve=reserve)
    other = replace(SLOW, reserve=reserve)
    host.accept([order(0, other)], has_files=True)
    wait_until(lambda: host._users.get("slow") is not None, "the other device of the board")
    assert "sweep s" in str(host.cycle_power(board))
    assert not done.exists()
    host.interrupt("s")
    assert host.is_idle(_LIMIT_S)
    assert host.cycle_power(board) is None
    assert done.exists(), "by its words, without a shell"
    assert measured(host, order(1, board)).status is Status.OK, "its turn is free again"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("sh", "-c", "echo '\033[2J no relay' >&2; exit 3"), "\\u001b[2J no relay"),
        (("sh", "-c", "exit 3"), "exit code 3"),
        (("sleep", "60"), "no end after 0.2 s"),
        (("no-such-lab", "x"), "cannot be started"),
    ],
)
def test_why_the_power_was_not_switched_is_one_printable_line(
    host: Host, command: tuple[str, ...], said: str
) -> None:
    board = replace(QUICK, power=Power(cycle=command, limit_s=0.2))
    why = host.cycle_power(board)
    assert said in str(why)
    assert len(str(why)) < 400
    assert isinstance(host.probe(board), DeviceFacts) is (command[0] != "no-such-lab")


def test_all_devices_are_asked_side_by_side(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    specs = tuple(DeviceSpec(name=name, kind="simulated") for name in "abc")
    together = threading.Barrier(len(specs), timeout=10)
    probe = SimulatedAgent.probe

    def wait_for_the_others(agent: SimulatedAgent) -> DeviceFacts:
        together.wait()
        return probe(agent)

    monkeypatch.setattr(SimulatedAgent, "probe", wait_for_the_others)
    assert set(host.facts(specs)) == {"a", "b", "c"}


def test_the_time_limit_of_a_phone_has_no_wait_in_it() -> None:
    patient = {"serial": "S", "max_wait_s": 900.0, "settle_s": 20.0, "boot_limit_s": 100.0}
    agent, other = create_agent("android", patient), create_agent("android", {"serial": "S"})
    assert agent.longest_s(TASK) == other.longest_s(TASK) > TASK.limits.timeout_s
    assert create_agent("cpu", {}).longest_s(TASK) == TASK.limits.timeout_s


@pytest.mark.slow
def test_a_round_that_shall_finish_is_stored_with_the_blocks_it_has(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    file = save_tiny_onnx(tmp_path / "tiny.onnx")
    members = ("s/c/0/0", "s/d/0/0")
    tasks = [
        replace(
            TASK,
            task_id=task_id,
            members=members,
            artifact_path=str(file),
            artifact_sha256=file_sha256(file),
            is_trusted=True,
            limits=RepeatLimits(timeout_s=60.0),
            policy=MeasurePolicy(max_time_s=60.0, half_width=1e-9, min_warmup_s=0.0),
            blocks=BlockPolicy(block_s=0.01, min_blocks=10_000, max_blocks=10_000),
        )
        for task_id in members
    ]
    device = DeviceSpec(name="d", kind="cpu", share=HostShare.ALONE)
    host.accept([DeviceTask(spec=device, task=task) for task in tasks], has_files=True)
    wait_until(lambda: host.finish_rounds("s") or host.is_idle(0.0), "the end", _LIMIT_S)
    found = ask(host).measurements
    assert [(one.status, one.stop_reason) for one in found] == [(Status.OK, "stopped")] * 2
    assert len({len(one.blocks) for one in found}) == 1
