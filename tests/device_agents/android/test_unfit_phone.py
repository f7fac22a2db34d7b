"""Phones in no state to be measured, through the agent and the real adb."""

import pytest
from adb_bench import AdbBench, NewAgent, assert_good, failure_of, leftovers, make_canary, make_task
from daily import daily
from phone_farm.faults import Fault

from fleetrank.device_agents.android.agent import AndroidAgent
from fleetrank.device_agents.android.state.identity import probe_phone
from fleetrank.device_agents.android.state.settings import FOLDER
from fleetrank.foundation.vocabulary import ErrorKind

# The newer adb alone: what differs between versions is in test_phone.py.
pytestmark = [pytest.mark.adb, pytest.mark.parametrize("adb_server", ["wheel"], indirect=True)]


@pytest.mark.parametrize("fault", daily([None, Fault.RUNNER_CRASH, Fault.GARBAGE_OUTPUT], None))
def test_a_canary_that_is_off_or_fails_says_nothing_of_the_cell(
    agent: AndroidAgent, bench: AdbBench, fault: Fault | None
) -> None:
    if fault is not None:
        bench.inject(fault)
    failure = failure_of(agent.measure(make_task(canary=make_canary(100, runs_before=True))))
    assert (failure.kind, failure.is_transient) == (ErrorKind.UNFIT_CONDITIONS, True)
    assert failure.stage == "canary"
    assert leftovers(bench.farmed.folder) == []


@pytest.mark.thorough
def test_cores_that_go_offline_cost_one_attempt(agent: AndroidAgent, bench: AdbBench) -> None:
    """Hot-plugging: the kernel switches the cores off that the repeat is pinned to."""
    bench.inject(Fault.CORES_OFFLINE)
    assert probe_phone(bench.phone).offline_cores == (4, 5, 6, 7, 8)
    failure = failure_of(agent.measure(make_task()))
    assert (failure.kind, failure.is_transient) == (ErrorKind.UNFIT_CONDITIONS, True)
    bench.clear(Fault.CORES_OFFLINE)
    assert probe_phone(bench.phone).offline_cores == ()
    assert_good(agent.measure(make_task()), bench)


@pytest.mark.parametrize(
    ("fault", "reason"),
    daily(
        [
            (Fault.HOT, "thermal status"),
            (Fault.THROTTLED, "thermal status"),
            (Fault.BATTERY_LOW, "battery"),
            (Fault.BATTERY_SAVER, "battery saver"),
            (Fault.DOZES, "dozes"),
        ],
        Fault.BATTERY_LOW,
    ),
)
def test_an_unfit_phone_is_not_measured(
    agent: AndroidAgent, bench: AdbBench, fault: Fault, reason: str
) -> None:
    bench.inject(fault)
    seen = agent.measure(make_task())
    failure = failure_of(seen)
    assert (failure.kind, failure.is_transient) == (ErrorKind.UNFIT_CONDITIONS, True)
    assert reason in failure.message
    assert seen.summary is None
    assert leftovers(bench.farmed.folder) == []


def test_a_hot_phone_asks_for_time_before_anything_is_sent_to_it(
    new_agent: NewAgent, bench: AdbBench
) -> None:
    bench.inject(Fault.HOT)
    bench.inject(Fault.DROP_PUSH)
    seen = new_agent(max_wait_s=20.0).measure(make_task())
    wait = failure_of(seen).wait
    assert (wait.ask_again_s, wait.limit_s) == (0.1, 20.0)
    assert seen.conditions_before is not None
    folder = bench.farmed.folder / FOLDER[1:]
    assert [path.name for path in folder.iterdir()] == ["lock"]
    assert not list((folder / "lock/held").iterdir())


def test_readings_set_by_hand_are_refused_with_the_command_that_resets_them(
    agent: AndroidAgent, bench: AdbBench
) -> None:
    bench.phone.shell("cmd thermalservice override-status 0", timeout_s=20)
    failure = failure_of(agent.measure(make_task()))
    assert failure.kind is ErrorKind.UNFIT_CONDITIONS
    assert "thermalservice reset" in failure.remedy


def test_a_phone_that_heats_up_keeps_what_it_measured_and_is_tried_again(
    agent: AndroidAgent, bench: AdbBench
) -> None:
    from fleetrank.device_agents.android import agent as module

    # The look before anything is sent, and the one before the run.
    reads = iter(["fit", None])
    real = module.read_phone_conditions

    def read_then_heat(*arguments: object) -> object:
        seen = real(*arguments)
        if next(reads, "again") is None:
            bench.inject(Fault.THROTTLED)
        return seen

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "read_phone_conditions", read_then_heat)
        seen = agent.measure(make_task())
    failure = failure_of(seen)
    assert (failure.kind, failure.is_transient) == (ErrorKind.UNFIT_CONDITIONS, True)
    assert seen.summary is not None
