"""Phones that go away, come back, or are not the registered one, through the agent and real adb."""

import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from adb_bench import (
    ENDLESS,
    AdbBench,
    NewAgent,
    assert_good,
    failure_of,
    leftovers,
    make_task,
    measure_patiently,
    wait_until_it_runs,
)
from daily import daily
from phone_farm.faults import Fault
from waiting import wait_until

from fleetrank.device_agents.android.agent import AndroidAgent
from fleetrank.device_agents.android.state.identity import probe_phone
from fleetrank.device_agents.errors import PermanentError
from fleetrank.foundation.vocabulary import ErrorKind, Status

# The newer adb alone: what differs between versions is in test_phone.py.
pytestmark = [pytest.mark.adb, pytest.mark.parametrize("adb_server", ["wheel"], indirect=True)]


@pytest.mark.thorough
def test_an_unauthorized_phone_is_no_fault_of_the_cell(
    agent: AndroidAgent, bench: AdbBench
) -> None:
    bench.inject(Fault.UNAUTHORIZED)
    failure = failure_of(measure_patiently(agent, make_task()))
    assert (failure.kind, failure.is_transient) == (ErrorKind.DEVICE_LOST, False)
    assert "accept" in failure.remedy
    bench.clear(Fault.UNAUTHORIZED)
    states = bench.phone.server.devices
    wait_until(lambda: {one.state for one in states()} == {"device"}, "adb to accept the key")
    assert_good(measure_patiently(agent, make_task()), bench)


@pytest.mark.thorough
@pytest.mark.parametrize("fault", [Fault.OFFLINE, Fault.REBOOT])
def test_a_phone_that_is_away_for_a_moment_is_waited_for(
    agent: AndroidAgent, bench: AdbBench, fault: Fault
) -> None:
    bench.farm.inject(0, fault, duration_s=1.0)
    assert_good(measure_patiently(agent, make_task()), bench)


def test_a_phone_that_is_gone_is_lost(new_agent: NewAgent, bench: AdbBench) -> None:
    bench.phone.server.disconnect(bench.farmed.address)
    agent = new_agent(serial="127.0.0.1:9", boot_limit_s=1.0)
    failure = failure_of(agent.measure(make_task()))
    assert (failure.kind, failure.is_transient) == (ErrorKind.DEVICE_LOST, True)
    assert failure.wait.limit_s == 1.0


@pytest.mark.parametrize(
    ("fault", "stage"),
    daily([(Fault.DROP_PUSH, "load"), (Fault.DROP_RUN, "timed")], Fault.DROP_RUN),
)
def test_a_cable_pulled_in_the_middle_costs_one_attempt(
    agent: AndroidAgent, bench: AdbBench, fault: Fault, stage: str
) -> None:
    bench.inject(fault)
    failure = failure_of(measure_patiently(agent, make_task()))
    assert (failure.kind, failure.is_transient) == (ErrorKind.DEVICE_LOST, True)
    assert failure.stage == stage
    assert leftovers(bench.farmed.folder) == []
    assert_good(measure_patiently(agent, make_task()), bench)


def test_an_adb_server_killed_in_the_middle_is_started_again(
    agent: AndroidAgent, bench: AdbBench
) -> None:
    server = bench.phone.server

    def kill() -> None:
        wait_until_it_runs(bench)
        command = [str(server.adb), "-P", str(server.port), "kill-server"]
        subprocess.run(command, check=True, timeout=30, capture_output=True)

    killing = threading.Thread(target=kill)
    killing.start()
    failure = failure_of(measure_patiently(agent, make_task(policy=ENDLESS)))
    killing.join()
    assert (failure.kind, failure.is_transient) == (ErrorKind.DEVICE_LOST, True)
    assert failure.stage == "timed"
    assert leftovers(bench.farmed.folder) == []
    assert_good(measure_patiently(agent, make_task()), bench)


@pytest.mark.thorough
def test_a_killed_server_that_many_miss_is_started_once(bench: AdbBench) -> None:
    server = bench.phone.server
    command = [str(server.adb), "-P", str(server.port), "kill-server"]
    subprocess.run(command, check=True, timeout=30, capture_output=True)
    with ThreadPoolExecutor(8) as pool:
        assert len(list(pool.map(lambda _: server.devices(), range(8)))) == 8


def test_a_full_phone_takes_no_artifact(agent: AndroidAgent, bench: AdbBench) -> None:
    bench.inject(Fault.STORAGE_FULL)
    failure = failure_of(agent.measure(make_task()))
    assert (failure.kind, failure.is_transient) == (ErrorKind.DISK_FULL, False)
    assert leftovers(bench.farmed.folder) == []


def test_another_phone_at_the_address_is_refused(new_agent: NewAgent, bench: AdbBench) -> None:
    agent = new_agent(serial_hash="0" * 64)
    failure = failure_of(agent.measure(make_task()))
    assert (failure.kind, failure.is_transient) == (ErrorKind.DEVICE_LOST, False)
    assert "not the registered phone" in failure.message
    with pytest.raises(PermanentError, match="not the registered phone"):
        agent.probe()
    assert not (bench.farmed.folder / "data/local/tmp/fleetrank").exists()


@pytest.mark.thorough
def test_a_twin_at_the_address_is_refused(new_agent: NewAgent, bench: AdbBench) -> None:
    """Equal tablets can have one serial number, model and build."""
    facts = probe_phone(bench.phone)
    known = {"identity_hash": facts.identity_hash, "unit_hash": facts.unit_hash}
    assert new_agent(**known).measure(make_task()).status is Status.OK
    android_id = bench.farmed.folder / ".phone/settings/secure/android_id"
    android_id.write_text("1234567890abcdef\n")
    assert "not the registered" in failure_of(new_agent(**known).measure(make_task())).message
    android_id.unlink()  # a phone that says nothing is not told from its twin
    assert new_agent(**known).measure(make_task()).status is Status.OK
