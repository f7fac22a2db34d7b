"""A caller without a scheduler waits until its device is fit, and no longer than the limit."""

import pickle  # noqa: TID251 - Ray pickles errors
from collections.abc import Callable

import pytest

from fleetrank.device_agents.contract.agent import StopRequested, never_stop
from fleetrank.device_agents.contract.failures import failure_from_error
from fleetrank.device_agents.contract.measurement import Measurement, failed
from fleetrank.device_agents.contract.task import MeasureTask
from fleetrank.device_agents.errors import AwayError, NotFitError, StoppedError
from fleetrank.device_agents.linux.patience import Clock, measure_when_fit
from fleetrank.device_agents.simulated import SimulatedAgent
from fleetrank.foundation.vocabulary import ErrorKind, Origin, Status
from tests.device_agents.conftest import plain_task

TASK = plain_task(task_id="s/c/0/0", macs_and_parameters=(1_000_000, 1_000))
HOT = NotFitError("its battery is at 40.2 C", "let it cool down", 10.0, 600.0)


class FakeTime:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.clock = Clock(now_ns=lambda: round(self.now_s * 1e9), sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now_s += seconds


class CoolingAgent(SimulatedAgent):
    """Hot until a moment of a clock; then the simulator measures."""

    def __init__(self, is_hot: Callable[[], bool]) -> None:
        super().__init__({})
        self.is_hot = is_hot
        self.n_asked = 0

    def measure(self, task: MeasureTask, stop_requested: StopRequested = never_stop) -> Measurement:
        self.n_asked += 1
        if not self.is_hot():
            return super().measure(task, stop_requested)
        return failed(task.task_id, failure_from_error(HOT, "start"), Origin.SIMULATED)


@pytest.fixture
def fake() -> FakeTime:
    return FakeTime()


def test_it_asks_until_the_device_is_fit_and_says_why_it_waits(fake: FakeTime) -> None:
    agent, said = CoolingAgent(lambda: fake.now_s < 25.0), []
    seen = measure_when_fit(agent, TASK, said.append, clock=fake.clock)
    assert seen.status is Status.OK
    assert agent.n_asked == 4
    assert 25.0 <= fake.now_s < 36.0
    assert len(said) == 3
    assert all("40.2 C" in line for line in said)


def test_after_the_limit_the_last_answer_is_a_failure_with_its_reason(fake: FakeTime) -> None:
    seen = measure_when_fit(CoolingAgent(lambda: True), TASK, print, clock=fake.clock)
    assert (seen.failure.kind, seen.failure.wait) == (ErrorKind.UNFIT_CONDITIONS, None)
    assert "600 s" in seen.failure.message
    assert "40.2 C" in seen.failure.message
    assert fake.now_s == pytest.approx(600.0, abs=1.0)


def test_the_user_can_end_the_wait(fake: FakeTime) -> None:
    agent = CoolingAgent(lambda: True)
    with pytest.raises(StoppedError):
        measure_when_fit(
            agent, TASK, print, stop_requested=lambda: fake.now_s > 3.0, clock=fake.clock
        )
    assert fake.now_s < 4.0


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (HOT, ErrorKind.UNFIT_CONDITIONS),
        (AwayError("not found", "plug it in", 2.0, 180.0), ErrorKind.DEVICE_LOST),
    ],
)
def test_an_answer_survives_pickling_and_becomes_a_failure_that_asks_for_time(
    error: NotFitError, kind: ErrorKind
) -> None:
    again = pickle.loads(pickle.dumps(error))
    failure = failure_from_error(again, "start")
    assert failure == failure_from_error(error, "start")
    assert (failure.kind, failure.is_transient) == (kind, True)
    assert (failure.wait.ask_again_s, failure.wait.limit_s) == (error.ask_again_s, error.limit_s)
