"""What a host does with orders, and what it tells to whom."""

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fleetrank.device_agents.contract.agent import StopRequested
from fleetrank.device_agents.contract.failures import failure_from_error
from fleetrank.device_agents.contract.measurement import Measurement, failed
from fleetrank.device_agents.contract.task import Execution, MeasureTask
from fleetrank.device_agents.errors import NotFitError
from fleetrank.device_agents.simulated.agent import SimulatedAgent
from fleetrank.foundation.vocabulary import ErrorKind, Origin, Runtime, Status
from fleetrank.orchestrator.dispatch.host.host_service import (
    DeviceTask,
    HostService,
    PollReply,
    PollRequest,
)
from fleetrank.orchestrator.identity.cells import DeviceSpec

QUICK = DeviceSpec(name="quick", kind="simulated")
SLOW = DeviceSpec(name="slow", kind="simulated", options=(("duration_s", 20.0),))
TASK = MeasureTask(
    task_id="s/c/0/0",
    artifact_path=f"/nowhere/{'0' * 64}.onnx",
    artifact_sha256="0" * 64,
    execution=Execution(runtime=Runtime.ONNX, backend="cpu"),
    macs_and_parameters=(1_000_000, 1_000),
)


@pytest.fixture
def service(tmp_path: Path) -> HostService:
    return HostService(tmp_path)


def order(number: int, spec: DeviceSpec = QUICK, sweep: str = "s") -> DeviceTask:
    return DeviceTask(spec=spec, task=replace(TASK, task_id=f"{sweep}/c/{number}/0"))


def ask(service: HostService, session: str = "a", **changes: object) -> PollReply:
    fields: dict[str, object] = {"sweep_id": "s", "session": session, "wait_s": 10.0}
    return service.poll(PollRequest(**(fields | changes)))


def ids(answer: PollReply) -> list[str]:
    return [measurement.task_id for measurement in answer.measurements]


def test_a_result_is_told_once_per_session_and_again_in_a_new_one(service: HostService) -> None:
    service.accept([order(0)], has_files=True)
    assert ids(ask(service)) == ["s/c/0/0"]
    assert ids(ask(service, wait_s=0.0)) == []
    assert ids(ask(service, "b", wait_s=0.0)) == ["s/c/0/0"]
    assert ids(ask(service, "b", acknowledged=("s/c/0/0",), wait_s=0.0)) == []
    assert ids(ask(service, "c", wait_s=0.0)) == []


def test_many_results_are_told_in_several_answers(service: HostService) -> None:
    ask(service, wait_s=0.0)
    service.accept([order(number) for number in range(150)], has_files=True)
    while service.running:
        time.sleep(0.01)
    told = [ids(ask(service, wait_s=0.0)) for _ in range(3)]
    assert [len(part) for part in told] == [100, 50, 0]
    assert len({task_id for part in told for task_id in part}) == 150
    assert len(ids(ask(service, "b", wait_s=0.0))) == 150, "a driver that asks anew is told all"


def test_an_order_sent_twice_is_measured_once(service: HostService) -> None:
    service.accept([order(0, SLOW), order(0, SLOW)], has_files=True)
    service.accept([order(0, SLOW)], has_files=True)
    assert dict(ask(service, wait_s=0.0).running) == {"s/c/0/0": "slow"}
    service.interrupt("s")
    assert ids(ask(service)) == ["s/c/0/0"]
    service.accept([order(0, SLOW)], has_files=True)
    assert service.running == frozenset()


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


def test_a_task_whose_device_was_not_fit_can_be_sent_again(
    service: HostService, cooling: list[bool]
) -> None:
    cooling += [False, False, True]
    reasons = []
    for _ in range(3):
        service.accept([order(0)], has_files=True)
        (found,) = ask(service).measurements
        reasons.append(None if found.failure is None else found.failure.message)
        assert ids(ask(service, wait_s=0.0)) == []
    assert reasons == ["it is hot", "it is hot", None]
    assert service.n_kept == 1
    service.accept([order(0)], has_files=True)
    assert service.running == frozenset(), "measured once"


def test_an_answer_that_a_device_is_not_fit_is_offered_again_and_lost_with_its_process(
    service: HostService, tmp_path: Path, cooling: list[bool]
) -> None:
    cooling += [False]
    service.accept([order(0)], has_files=True)
    assert ids(ask(service)) == ["s/c/0/0"]
    assert ids(ask(service, "b", wait_s=0.0)) == ["s/c/0/0"]
    assert ids(ask(HostService(tmp_path), wait_s=0.0)) == []
    assert ids(ask(service, "b", acknowledged=("s/c/0/0",), wait_s=0.0)) == []
    assert ids(ask(service, "c", wait_s=0.0)) == []


def test_a_new_process_offers_what_the_old_one_had_finished(tmp_path: Path) -> None:
    old = HostService(tmp_path)
    old.accept([order(0), order(1, SLOW)], has_files=True)
    assert ids(ask(old)) == ["s/c/0/0"]
    answer = ask(HostService(tmp_path), wait_s=0.0)
    assert (ids(answer), dict(answer.running)) == (["s/c/0/0"], {})


def test_one_sweep_is_interrupted_and_the_other_goes_on(service: HostService) -> None:
    other = replace(SLOW, name="other")
    service.accept([order(0, SLOW), order(0, other, "t")], has_files=True)
    service.interrupt("s")
    (found,) = ask(service).measurements
    assert found.failure is not None
    assert found.failure.kind is ErrorKind.INTERRUPTED
    assert service.running == {"t/c/0/0"}
    service.interrupt("t")


def test_orders_whose_files_are_not_here_are_not_taken(service: HostService) -> None:
    assert service.accept([order(0)], has_files=False) == [f"{'0' * 64}.onnx"]
    assert service.running == frozenset()


def test_a_waiting_question_is_answered_as_soon_as_there_is_something(
    service: HostService,
) -> None:
    answers: list[PollReply] = []
    thread = threading.Thread(target=lambda: answers.append(ask(service, wait_s=30.0)))
    started_s = time.perf_counter()
    thread.start()
    while not service._sessions:
        time.sleep(0.01)
    service.accept([order(0)], has_files=True)
    thread.join(20.0)
    assert time.perf_counter() - started_s < 10
    assert answers[0].measurements[0].status is Status.OK


def test_a_figure_that_no_spool_can_hold_is_a_failed_attempt(service: HostService) -> None:
    eternal = replace(QUICK, options=(("overhead_us", 1e30),))
    service.accept([order(0, eternal)], has_files=True)
    (found,) = ask(service).measurements
    assert found.failure is not None
    assert found.failure.kind is ErrorKind.INTERNAL
    assert service.running == frozenset()


def test_a_file_that_is_gone_when_it_is_needed_is_a_failed_attempt(
    service: HostService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service._files, "missing", lambda names: [])
    service.accept([order(0)], has_files=False)
    (found,) = ask(service).measurements
    assert found.failure is not None
    assert found.status is Status.FAILED
