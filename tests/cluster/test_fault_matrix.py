"""What a sweep on three hosts makes of each thing that can go wrong.

In every case each (cell, repeat) ends exactly once, nothing is left behind on any host, and the
time to recover goes into the table that `make test-cluster` prints.
"""

import signal
import sys
import time

import onnx
import pytest
from cluster_driver import ACTOR, HEAD, RAYLET, WORKER, Case, is_failure, is_ok
from waiting import wait_until

pytestmark = pytest.mark.cluster

_TASK_S = 0.5
"""Of a simulated device: long enough to be hit, short enough for a matrix."""
_MEASURE_S = 2.0
"""Of a real worker, so that a fault hits it and not the pause between two."""
_LIMIT_S = 90.0


def _simulate(case: Case, *hosts: str, repeats: int = 4, **spec: object) -> list[str]:
    """One simulated device on each host; 2 models x 1 runtime on each of them."""
    devices = [f"sim-{host}" for host in hosts]
    for device, host in zip(devices, hosts, strict=True):
        case.driver.add_device(device, host, _TASK_S)
    case.driver.write_spec(devices, repeats=repeats, **spec)
    return devices


def _measure_on(case: Case, host: str) -> str:
    """A sweep of 2 cells x 2 repeats by real workers on one host's CPU, which is measuring now."""
    cpu = case.cpu_of(host)
    case.driver.write_spec([cpu], repeats=2, max_time_s=_MEASURE_S)
    case.start().wait_for(is_ok, _LIMIT_S)
    wait_until(lambda: case.host(host).processes(WORKER), "a worker", 10.0)
    return cpu


def test_kill_of_a_host_actor(case: Case) -> None:
    cpu = _measure_on(case, "left")
    before = {worker.pid for worker in case.host("left").processes(WORKER)}
    case.harm(cpu)
    assert case.host("left").kill(ACTOR)
    wait_until(
        lambda: not before & {worker.pid for worker in case.host("left").processes(WORKER)},
        "the worker to follow its actor",
        3.0,
    )
    case.recovers(4, "kill -9 of a host actor", "its worker ended with it, Ray started it anew")


def test_a_host_actor_freezes(case: Case) -> None:
    _, frozen = _simulate(case, "right", "left")
    case.start().wait_for(lambda event: is_ok(event) and event["device"] == frozen, _LIMIT_S)
    case.harm(frozen)
    assert case.host("left").kill(ACTOR, signal.SIGSTOP)
    case.sweep.wait_for(is_failure, 30.0)
    assert "for 12 s" in case.driver.waits(frozen)
    case.recovers(
        16, "a host actor freezes", "it was killed, and Ray started it anew", failures=["host_lost"]
    )


@pytest.mark.thorough
def test_kill_of_a_raylet(case: Case) -> None:
    cpu = _measure_on(case, "left")
    before = {worker.pid for worker in case.host("left").processes(WORKER)}
    case.harm(cpu)
    assert case.host("left").kill(RAYLET)
    wait_until(
        lambda: not before & {worker.pid for worker in case.host("left").processes(WORKER)},
        "the worker to follow its raylet",
        10.0,
    )
    case.recovers(4, "kill -9 of a raylet", "the supervisor started another, the host joined again")


def test_kill_of_the_driver(case: Case) -> None:
    _simulate(case, "left", "right")
    case.start().wait_for(is_ok, _LIMIT_S, n=3)
    # Stopped, so that there is a sweep left to refuse however long the second driver takes.
    case.sweep.process.signal(signal.SIGSTOP)
    second = case.driver.sweep("resume")
    assert second.finish(_LIMIT_S) == 2
    assert "is being run by another process" in second.output
    case.sweep.process.signal(signal.SIGKILL)
    assert case.sweep.finish(10.0) == -signal.SIGKILL
    before = case.driver.rows()
    # A host that is slow to start, as on a machine under load, has failed an attempt by now.
    n_failed = sum(row["status"] != "ok" for row in before)
    assert len(before) < 16
    spools = [case.spool("left"), case.spool("right")]
    wait_until(lambda: all(spool.stat().st_size for spool in spools), "what was under way", 5.0)
    case.harm()
    case.start("resume")
    assert case.sweep.finish(_LIMIT_S) == 0, case.sweep.output
    case.assert_all_measured(16)
    # What the two hosts finished while nobody asked was fetched: no repeat was begun a second time.
    assert len(case.driver.rows()) == 16 + n_failed
    assert not any(spool.stat().st_size for spool in spools)
    case.assert_nothing_left_behind()
    case.note("kill -9 of the driver", "resume fetched what hosts had finished, measured the rest")


def test_a_host_loses_power_and_comes_back(case: Case) -> None:
    _, lost = _simulate(case, "right", "left")
    case.start().wait_for(lambda event: is_ok(event) and event["device"] == lost, _LIMIT_S)
    case.harm(lost)
    case.host("left").power_off()
    case.sweep.wait_for(is_failure, 30.0)
    assert f"{lost} is attached to host left, which is not available" in case.driver.run(
        "doctor", "--cluster", "auto"
    )
    case.host("left").power_on()
    case.cluster.start(case.host("left"))
    case.recovers(16, "power off of a host, and on", "its work waited for it")


@pytest.mark.thorough
def test_a_link_is_cut_for_5_s(case: Case) -> None:
    _, cut = _simulate(case, "right", "left")
    case.start().wait_for(lambda event: is_ok(event) and event["device"] == cut, _LIMIT_S)
    case.harm(cut)
    case.host("left").cut()
    time.sleep(5.0)
    case.host("left").restore()
    case.recovers(16, "link cut for 5 s", "nothing was measured twice")


def test_a_link_is_cut_for_good_and_restored_for_a_resume(case: Case) -> None:
    _, cut = _simulate(case, "right", "left", wait_s=5.0)
    case.start().wait_for(lambda event: is_ok(event) and event["device"] == cut, _LIMIT_S)
    case.harm(cut)
    case.host("left").cut()
    assert case.sweep.finish(_LIMIT_S) == 3, case.sweep.output
    case.note("link cut for good", "its cells were left to a resume, the others measured")
    case.host("left").restore()
    case.cluster.wait_for("left", is_alive=True, timeout_s=60.0)
    case.harm(cut)
    case.start("resume")
    case.recovers(16, "link restored, resume", "the rest was measured")


@pytest.mark.thorough
@pytest.mark.parametrize(("mute", "deaf"), [("left", "head"), ("head", "left")])
def test_one_direction_of_a_link_is_lost(case: Case, mute: str, deaf: str) -> None:
    _, cut = _simulate(case, "right", "left")
    case.start().wait_for(lambda event: is_ok(event) and event["device"] == cut, _LIMIT_S)
    case.harm(cut)
    case.host(mute).silence(case.host(deaf))
    case.sweep.wait_for(is_failure, 30.0)
    assert case.driver.waits(cut)
    case.host(mute).restore()
    assert case.sweep.finish(_LIMIT_S) == 0, case.sweep.output
    case.assert_all_measured(16)
    assert set(case.failures()) == {"host_lost"}
    case.assert_nothing_left_behind()
    case.note(f"nothing from {mute} arrives at {deaf}", "its work waited for the link")


@pytest.mark.thorough
@pytest.mark.parametrize("case", ["right"], indirect=True)
def test_only_the_head_reaches_a_host(case: Case) -> None:
    _, cut = _simulate(case, "head", "left")
    case.start().wait_for(lambda event: is_ok(event) and event["device"] == cut, _LIMIT_S)
    case.harm(cut)
    driver, host = case.host("right"), case.host("left")
    driver.silence(host)
    host.silence(driver)
    case.sweep.wait_for(is_failure, 30.0)
    assert "for 12 s" in case.driver.waits(cut)
    assert case.cluster.alive() >= {"left", "right"}
    for end in (driver, host):
        end.restore()
    assert case.sweep.finish(_LIMIT_S) == 0, case.sweep.output
    case.assert_all_measured(16)
    assert set(case.failures()) == {"host_lost"}
    case.assert_nothing_left_behind()
    case.note("the head reaches a host, the driver does not", "its work waited for the link")


@pytest.mark.thorough
def test_the_head_is_killed_in_the_middle(case: Case) -> None:
    _simulate(case, "left", "right")
    case.start().wait_for(is_ok, _LIMIT_S, n=4)
    assert case.host("head").kill(HEAD)
    assert case.sweep.finish(_LIMIT_S) == 1, case.sweep.output
    assert "fleetrank sweep resume" in case.sweep.output
    case.cluster.mend(("head", "left", "right"))
    case.harm()
    case.start("resume")
    case.recovers(16, "kill -9 of the head, resume", "what hosts had finished was fetched")


@pytest.mark.thorough
def test_a_host_is_added_in_the_middle(case: Case) -> None:
    _, late = _simulate(case, "left", "late")
    case.start().wait_for(is_ok, _LIMIT_S)
    case.harm(late)
    case.cluster.start(case.cluster.network.add("late"))
    case.recovers(16, "host added in the middle", "its cells, which had waited, were measured")


_HOLD_STORE = """
import sys, time
import numpy, ray
ray.init(address=sys.argv[1], log_to_driver=False, namespace="another")
# What a process reads can be moved to no disk.
held = [ray.get(ray.put(numpy.zeros(10_000_000, "u1"))) for _ in range(9)]
print("held", flush=True)
time.sleep(1000)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("host", ["head", "left"])
def test_the_object_store_is_full(case: Case, host: str) -> None:
    """Of the driver's host, and of a host that gets the model's file."""
    holder = [sys.executable, "-c", _HOLD_STORE, case.cluster.address]
    log = case.host(host).folder / "holder.log"
    holding = case.host(host).start(holder, log=log)
    wait_until(lambda: "held" in log.read_text(), "the store to be full", 30.0)
    try:
        model = onnx.load(case.driver.here / "m.onnx")
        model.doc_string = "x" * 20_000_000
        onnx.save(model, case.driver.here / "m.onnx")
        case.driver.write_spec([case.cpu_of("left")], repeats=2)
        case.harm()
        assert case.start().finish(_LIMIT_S) == 0, case.sweep.output
    finally:
        holding.kill()
    case.assert_all_measured(4)
    assert case.failures() == []
    case.assert_nothing_left_behind()
    case.note(f"object store of {host} is full", "the model's file arrived all the same")
