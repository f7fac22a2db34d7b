"""One contract for a host here and one in Ray, and what only Ray can get wrong."""

import contextlib
import hashlib
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest
from wording import has

from fleetrank.device_agents.contract.agent import DeviceFacts
from fleetrank.device_agents.contract.measurement import Failure, Measurement
from fleetrank.device_agents.contract.task import Execution, MeasureTask, RepeatLimits
from fleetrank.device_agents.hosts.host import Host
from fleetrank.device_agents.hosts.messages import DeviceSpec
from fleetrank.device_agents.hosts.reach import LOCAL_HOST, HostHere, HostLink
from fleetrank.foundation.vocabulary import ErrorKind, Origin, Runtime, Status
from fleetrank.orchestrator.dispatch import ray_hosts
from fleetrank.orchestrator.dispatch.hosts import Hosts, PlacedDevice
from fleetrank.orchestrator.dispatch.local_ray import local_ray
from fleetrank.orchestrator.dispatch.ray_hosts import RayHosts
from fleetrank.orchestrator.dispatch.ray_process import RayProcess

REACHES = ["inline", pytest.param("ray", marks=pytest.mark.ray)]
SPECS = (
    DeviceSpec(name="quick", kind="simulated"),
    DeviceSpec(name="slow", kind="simulated", options=(("duration_s", 30.0),)),
    DeviceSpec(name="broken", kind="simulated", options=(("noise", -1.0),), origin=Origin.VIRTUAL),
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Ray keeps its token under HOME; tests write nothing there."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        yield folder


@contextlib.contextmanager
def open_ray(specs: tuple[DeviceSpec, ...], spool: Path, **changes: object) -> Iterator[Hosts]:
    with local_ray(), RayHosts(str(spool)) as reach:
        end_s = time.perf_counter() + 120
        # On a busy host one wait is not enough, and a task for an absent host fails at once.
        while LOCAL_HOST not in reach.settle().hosts:
            assert time.perf_counter() < end_s
        with Hosts("s", placed(specs), reach, **changes) as opened:
            yield opened


@contextlib.contextmanager
def open_hosts(kind: str, specs: tuple[DeviceSpec, ...], spool: Path) -> Iterator[Hosts]:
    if kind == "inline":
        with Hosts("s", placed(specs), HostHere(Host(spool))) as opened:
            yield opened
        return
    with RayProcess() as process:
        process.start(spool)
        with Hosts("s", placed(specs), process, silent_s=30.0) as opened:
            yield opened


def placed(specs: tuple[DeviceSpec, ...]) -> list[PlacedDevice]:
    return [PlacedDevice(spec=spec, host=LOCAL_HOST) for spec in specs]


@pytest.fixture(scope="class", params=REACHES)
def hosts(
    request: pytest.FixtureRequest, home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Hosts]:
    with open_hosts(request.param, SPECS, tmp_path_factory.mktemp("spool")) as opened:
        yield opened


def task(name: str, **changes: object) -> MeasureTask:
    fields: dict[str, object] = {
        "task_id": f"s/c/0/{name}",
        "artifact_path": "/nowhere.onnx",
        "artifact_sha256": "0",
        "execution": Execution(runtime=Runtime.ONNX, backend="cpu"),
        "macs_and_parameters": (10_000_000, 1_000_000),
        "limits": RepeatLimits(timeout_s=60.0),
    }
    return MeasureTask(**(fields | changes))


def wait_for(hosts: Hosts, count: int, limit_s: float = 60.0) -> dict[str, Measurement]:
    arrived: dict[str, Measurement] = {}
    end_s = time.perf_counter() + limit_s
    while len(arrived) < count and time.perf_counter() < end_s:
        found = hosts.poll(0.2)
        arrived |= {measurement.task_id.rpartition("/")[2]: measurement for measurement in found}
        hosts.acknowledge([measurement.task_id for measurement in found])
    assert len(arrived) == count
    return arrived


class TestContract:
    """What both promise."""

    def test_facts_name_every_device(self, hosts: Hosts) -> None:
        facts: Mapping[str, DeviceFacts] = hosts.facts()
        assert set(facts) == {"quick", "slow"}
        assert facts["quick"].origin is Origin.SIMULATED

    def test_a_measurement_comes_back_under_its_task_id(self, hosts: Hosts) -> None:
        hosts.submit("quick", task("t1"))
        found = wait_for(hosts, 1)["t1"]
        assert found.status is Status.OK
        assert found.samples_ns

    def test_polling_with_nothing_under_way_waits(self, hosts: Hosts) -> None:
        started_s = time.perf_counter()
        assert list(hosts.poll(0.2)) == []
        assert time.perf_counter() - started_s >= 0.19

    def test_interrupting_ends_what_runs_and_nothing_later(self, hosts: Hosts) -> None:
        hosts.submit("slow", task("t2"))
        end_s, arrived = time.perf_counter() + 20, []
        while not arrived and time.perf_counter() < end_s:
            # Again and again: on a busy machine the task starts after the first request.
            hosts.interrupt()
            arrived = list(hosts.poll(0.05))
        (found,) = arrived
        assert found.failure is not None
        assert found.failure.kind is ErrorKind.INTERRUPTED
        hosts.submit("quick", task("t3"))
        assert wait_for(hosts, 1)["t3"].status is Status.OK

    def test_finishing_rounds_leaves_other_tasks_running(self, hosts: Hosts) -> None:
        hosts.submit("quick", task("t6"))
        hosts.finish_rounds()
        assert wait_for(hosts, 1)["t6"].status is Status.OK

    def test_a_probe_tells_what_a_device_is(self, hosts: Hosts) -> None:
        assert isinstance(hosts.probe("quick"), DeviceFacts)

    def test_an_agent_that_cannot_be_made_is_a_failed_measurement(self, hosts: Hosts) -> None:
        hosts.submit("broken", task("t4"))
        found = wait_for(hosts, 1)["t4"]
        assert isinstance(found.failure, Failure)
        assert (found.failure.kind, found.failure.is_transient) == (ErrorKind.DEVICE_LOST, False)
        assert found.origin is Origin.VIRTUAL

    @pytest.mark.ray
    @pytest.mark.parametrize("hosts", ["ray"], indirect=True)
    def test_an_actor_that_dies_loses_the_measurement_and_comes_back(self, hosts: Hosts) -> None:
        hosts.submit("slow", task("t5"))
        assert list(hosts.poll(1.0)) == []
        os.kill(_actor_process().pid, signal.SIGKILL)
        found = wait_for(hosts, 1)["t5"]
        assert found.failure is not None
        assert found.failure.kind is ErrorKind.DEVICE_LOST
        assert found.failure.is_transient
        assert found.origin is Origin.MEASURED, "what its specification says"
        # Whoever tries again right away may still find the actor restarting.
        end_s = time.perf_counter() + 60
        status = Status.FAILED
        while status is Status.FAILED and time.perf_counter() < end_s:
            hosts.submit("quick", task("t7"))
            status = wait_for(hosts, 1)["t7"].status
        assert status is Status.OK


@pytest.mark.thorough
@pytest.mark.ray
def test_a_host_process_that_hangs_is_ended_and_its_devices_answer_again(
    home: Path, tmp_path: Path
) -> None:
    with open_ray(SPECS, tmp_path, silent_s=2.0) as hosts:
        hosts.submit("slow", task("t5"))
        assert hosts.poll(1.0) == []
        os.kill(_actor_process().pid, signal.SIGSTOP)
        found = wait_for(hosts, 1)["t5"]
        assert found.failure is not None
        assert (found.failure.kind, found.failure.is_transient) == (ErrorKind.HOST_LOST, True)
        assert hosts.in_flight() == {}
        end_s = time.perf_counter() + 60
        while not isinstance(hosts.probe("quick"), DeviceFacts):
            assert time.perf_counter() < end_s
            hosts.poll(0.2)
        hosts.poll(0.2)
        hosts.submit("quick", task("t6"))
        assert wait_for(hosts, 1)["t6"].status is Status.OK


@pytest.mark.thorough
@pytest.mark.ray
def test_a_new_driver_restarts_a_frozen_actor_only_if_a_sweep_says_after_how_long(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with local_ray():
        with RayHosts(str(tmp_path)) as reach:
            assert LOCAL_HOST in reach.settle().hosts
        frozen = _actor_process()
        os.kill(frozen.pid, signal.SIGSTOP)
        monkeypatch.setattr(ray_hosts, "_CONNECT_S", 1.5)
        with RayHosts(str(tmp_path)) as reader:
            assert LOCAL_HOST in reader.settle().problems
        assert frozen.is_running()
        with RayHosts(str(tmp_path), silent_s=1.0) as reach:
            end_s = time.perf_counter() + 60
            while LOCAL_HOST not in reach.hosts():
                assert time.perf_counter() < end_s
                time.sleep(0.05)
        assert not frozen.is_running()


@pytest.mark.thorough
@pytest.mark.ray
def test_hosts_are_not_silent_while_the_driver_does_not_listen(home: Path, tmp_path: Path) -> None:
    absent_s = 0.0
    with open_ray(
        SPECS, tmp_path, silent_s=3.0, clock=lambda: time.monotonic() + absent_s
    ) as hosts:
        absent_s = 600.0  # as while it exports models
        hosts.submit("quick", task("t7"))
        found = wait_for(hosts, 1)["t7"]
        assert found.status is Status.OK, found.failure


@pytest.mark.parametrize(
    "kind", ["inline", pytest.param("ray", marks=[pytest.mark.ray, pytest.mark.thorough])]
)
def test_what_nobody_has_stored_is_offered_to_the_next_driver(
    kind: str, home: Path, tmp_path: Path
) -> None:
    with open_hosts(kind, SPECS, tmp_path) as hosts:
        hosts.submit("quick", task("t7"))
        hosts.submit("slow", task("t8"))
        found = next(m for _ in range(200) for m in hosts.poll(0.1))
        assert found.status is Status.OK
        assert dict(hosts.in_flight()) == {"s/c/0/t8": "slow"}
    with open_hosts(kind, SPECS, tmp_path) as hosts:
        again = {m.task_id: m for m in hosts.poll(0.0)}
        assert again[found.task_id] == found
        assert hosts.in_flight() == {}
        hosts.acknowledge(list(again))
    with open_hosts(kind, SPECS, tmp_path) as hosts:
        assert list(hosts.poll(0.0)) == []


def _actor_process() -> psutil.Process:
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any("HostActor" in word for word in child.cmdline()):
                return child
    raise AssertionError("no host actor")


class Elsewhere(HostHere):
    """A host that has other paths or another clock; `link` replaces fields of its link."""

    def __init__(self, host: Host, **link: object) -> None:
        super().__init__(host)
        self.link = link

    def hosts(self) -> Mapping[str, HostLink]:
        return {name: replace(one, **self.link) for name, one in super().hosts().items()}

    def send_files(self, host: str, files: Sequence[Path]) -> Future[None]:
        for file in files:
            self._host._files.path(file.name).write_bytes(file.read_bytes())
        return super().send_files(host, files)


@pytest.mark.parametrize("ahead_s", [3600.0, -86_400.0, 0.0])
def test_rows_of_a_host_whose_clock_is_off_have_the_time_of_the_driver(
    tmp_path: Path, ahead_s: float
) -> None:
    reach = Elsewhere(Host(tmp_path), clock_ahead_s=ahead_s)
    with Hosts("s", placed(SPECS[:1]), reach) as hosts:
        hosts.submit("quick", task("t"))
        found = wait_for(hosts, 1)["t"]
    started, finished = map(datetime.fromisoformat, (found.started_utc, found.finished_utc))
    ago = datetime.now(UTC) - started
    assert abs(ago.total_seconds() - ahead_s) < 300
    assert started <= finished


def test_a_round_of_which_the_host_lacks_a_file_is_sent_again_as_a_whole(tmp_path: Path) -> None:
    reach, members = Elsewhere(Host(tmp_path), has_files=False), ("s/c/0/t1", "s/c/0/t2")
    with Hosts("s", placed(SPECS[:1]), reach) as hosts:
        for number, folder in ((1, tmp_path / "files"), (2, tmp_path)):
            file = folder / f"{hashlib.sha256(bytes(number)).hexdigest()}.onnx"
            file.write_bytes(bytes(number))
            hosts.submit("quick", task(f"t{number}", artifact_path=str(file), members=members))
        found = wait_for(hosts, 2)
    assert {one.status for one in found.values()} == {Status.OK}
    assert (tmp_path / "files" / file.name).exists()


def test_the_clock_of_a_host_that_joins_a_running_sweep_is_compared(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    links: dict[str, HostLink] = {}

    class Later(HostHere):
        def hosts(self) -> Mapping[str, HostLink]:
            return links

    with Hosts("s", placed(SPECS[:1]), Later(Host(tmp_path))) as hosts:
        late = HostLink(node_id="1", has_files=True, clock_ahead_s=-3600.0)
        links[LOCAL_HOST] = late
        hosts.poll(0.0)
        hosts.poll(0.0)
    (said,) = (one.getMessage() for one in caplog.records if one.levelname == "WARNING")
    assert has(said, LOCAL_HOST, "3600 s behind")
