"""What a sweep on three hosts makes of each thing that can go wrong.

In every case each (cell, repeat) ends exactly once, nothing is left behind on any host, and the
time to recover goes into the table that `make test-cluster` prints.
"""

import signal
import sys
import time
from datetime import datetime, timedelta

import onnx
import pytest
from cluster_driver import (
    ACTOR,
    HEAD,
    RAYLET,
    WORKER,
    Case,
    ClusterDriver,
    Event,
    is_failure,
    is_ok,
)
from namespace_hosts import NamespaceHost, wait_until
from wording import has

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
def test_a_new_driver_meets_a_frozen_actor(case: Case) -> None:
    _, frozen = _simulate(case, "right", "left")
    case.start().wait_for(is_ok, _LIMIT_S, n=4)
    case.sweep.process.kill()
    assert case.host("left").kill(ACTOR, signal.SIGSTOP)
    case.harm(frozen)
    case.start("resume")
    assert case.sweep.finish(2 * _LIMIT_S) == 0, case.sweep.output
    assert "left is not used: " in case.sweep.output
    case.assert_all_measured(16)
    case.assert_nothing_left_behind()
    case.note("a new driver meets a frozen actor", "it was killed, and Ray started it anew")


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
def test_an_equal_device_takes_over_from_a_lost_host(case: Case) -> None:
    taker, lost = _simulate(case, "right", "left", wait_s=6.0, takeover=True)
    case.start().wait_for(lambda event: is_ok(event) and event["device"] == lost, _LIMIT_S)
    case.harm()
    case.host("left").power_off()
    assert case.sweep.finish(_LIMIT_S) == 0, case.sweep.output
    case.assert_all_measured(16)
    good = [row for rows in case.driver.ends().values() for row in rows if row["status"] == "ok"]
    assert {row["taken_over_by"] for row in good if row["device"] == lost} == {None, taker}
    case.assert_nothing_left_behind()
    case.note("power off for good, takeover", "an equal device measured what was left")


@pytest.mark.thorough
def test_a_host_is_added_in_the_middle(case: Case) -> None:
    _, late = _simulate(case, "left", "late")
    case.start().wait_for(is_ok, _LIMIT_S)
    case.harm(late)
    case.cluster.start(case.cluster.network.add("late"))
    case.recovers(16, "host added in the middle", "its cells, which had waited, were measured")


def _is_given_up(event: Event) -> bool:
    return event["event"] == "DeviceWaits" and bool(event["is_left_out"])


@pytest.mark.thorough
def test_a_host_joins_after_its_device_was_given_up(case: Case) -> None:
    _, late = _simulate(case, "left", "tardy", repeats=30, wait_s=2.0, join=True)
    case.start().wait_for(_is_given_up, _LIMIT_S)
    case.harm(late)
    case.cluster.start(case.cluster.network.add("tardy"))
    outcome = "its cells, which had been left to a resume, were measured"
    case.recovers(120, "host joins late, `join: true`", outcome, limit_s=2 * _LIMIT_S)
    case.start("resume", "--with", "tardy")
    assert case.sweep.finish(_LIMIT_S) == 0, "it answers"
    case.host("tardy").power_off()


@pytest.mark.thorough
def test_the_driver_runs_out_of_disk(case: Case) -> None:
    _simulate(case, "left", "right")
    results = case.driver.root / "results"
    mounted = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(results)]
    case.host("head").run(["mkdir", str(results)])
    assert case.host("head").run(mounted).returncode == 0
    case.start().wait_for(is_ok, _LIMIT_S, n=4)
    fill = f"dd if=/dev/zero of={results}/filler bs=4k; true"
    case.host("head").run(["sh", "-c", fill])
    case.harm()
    assert case.sweep.finish(_LIMIT_S) not in (0, None)
    assert "space" in case.sweep.output
    (case.driver.here / "results" / "filler").unlink()
    case.harm()
    case.start("resume")
    case.recovers(
        16, "disk full on the driver, resume", "what could not be stored was fetched again"
    )


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


def _host_with(case: Case, name: str, program: str) -> NamespaceHost:
    """A host more, on which every Python runs a program first."""
    host = case.cluster.network.add(name)
    folder = host.folder / "first"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(program)
    paths = filter(None, (str(folder), host.env.get("PYTHONPATH")))
    host.extra_env["PYTHONPATH"] = ":".join(paths)
    case.cluster.start(host)
    return host


_SLOW_DISK = """
import os, time
_fsync = os.fsync

def _slow(file):
    time.sleep(3.0)
    _fsync(file)

os.fsync = _slow
"""


@pytest.mark.thorough
def test_an_fsync_takes_seconds(case: Case) -> None:
    model = case.driver.here / "m.onnx"
    slow = _host_with(case, "slow", _SLOW_DISK)
    case.driver = ClusterDriver(host=slow, address=case.cluster.address, root=slow.home / "ws")
    case.driver.make(model, n_models=2)
    _simulate(case, "left", "slow", repeats=2)
    case.harm()
    case.start()
    case.recovers(
        8,
        "fsync takes 3 s, on driver and host",
        "slower, and nothing else",
        failures=[],
        limit_s=2 * _LIMIT_S,
    )
    slow.power_off()


_LATE_CLOCK = """
# An hour ahead for what fleetrank's own processes on this host read. Ray's keep the machine's time:
# the clock belongs to the kernel, and a library preloaded to falsify it ends the raylet.
import builtins, datetime, types

class _Ahead(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return super().now(tz) + datetime.timedelta(hours=1)

_ahead = types.ModuleType("datetime")
vars(_ahead).update(vars(datetime), datetime=_Ahead)
_import = builtins.__import__

def _with_clock(name, globals=None, *rest, **named):
    owner = str((globals or {}).get("__name__")).partition(".")[0]
    if name == "datetime" and owner == "fleetrank":
        return _ahead
    return _import(name, globals, *rest, **named)

builtins.__import__ = _with_clock
"""


@pytest.mark.thorough
def test_a_clock_is_off_by_an_hour(case: Case) -> None:
    _host_with(case, "skewed", _LATE_CLOCK)
    _simulate(case, "left", "skewed")
    case.start()
    assert case.sweep.finish(_LIMIT_S) == 0, case.sweep.output
    case.assert_all_measured(16)
    assert has(case.sweep.output, "clock of skewed", "3600 s ahead")
    stamps = [datetime.fromisoformat(str(row["finished_utc"])) for row in case.driver.rows()]
    assert max(stamps) - min(stamps) < timedelta(minutes=30)
    case.assert_nothing_left_behind()
    case.note("one clock an hour ahead", "a warning; all rows have the driver's time")


@pytest.mark.thorough
def test_sigterm_of_everything(case: Case) -> None:
    _simulate(case, "left", "right")
    case.start().wait_for(is_ok, _LIMIT_S, n=4)
    for host in case.cluster.network.hosts.values():
        host.kill("", signal.SIGTERM)
    assert case.sweep.finish(_LIMIT_S) != 0
    # Ray takes up to 30 s to leave; like an init, we do not wait for so long.
    for name in ("head", "left", "right"):
        case.host(name).power_off()
    for name in ("head", "left", "right"):
        case.host(name).power_on()
        case.cluster.start(case.host(name))
    case.harm()
    case.start("resume")
    case.recovers(16, "SIGTERM of everything, resume", "nothing finished was measured again")
