"""The hosts of a sweep: what its record keeps, and where devices hang."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from wording import has

from fleetrank.analysis.stored.sweep_record import Provenance, SweepRecord
from fleetrank.device_agents.contract.kind import HostShare
from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.hosts.facts import HostFacts, read_host_facts
from fleetrank.device_agents.hosts.messages import DeviceSpec
from fleetrank.orchestrator.errors import StoreError, UsageError
from fleetrank.orchestrator.sweep.cluster_status import find_problems, skew
from fleetrank.orchestrator.sweep.fleet import Fleet, fleet_of_record, this_host
from fleetrank.orchestrator.sweep.sweep_run import WrittenSpec, new_record, setup_of_record
from fleetrank.orchestrator.sweep.sweep_setup import devices_of, host_of, plan_sweep
from fleetrank.orchestrator.workspace.device_registry import DeviceFile
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec
from fleetrank.orchestrator.workspace.workspace import Workspace

FACTS = HostFacts(
    host_hash="aaaaaabbbbbb",
    # It is the driver's own host, whose agent refuses CPUs that this process may not use.
    one_per_core=(min(os.sched_getaffinity(0)),),
    python_version="3.11.7",
    versions=(("fleetrank", "1"), ("onnxruntime", "1.22")),
    code_sha256="c" * 64,
    niceness=0,
    seen=(("android", ("SERIAL",)), ("cuda", ("GPU-SERIAL",))),
)
OTHER = replace(FACTS, host_hash="ddddddeeeeee", one_per_core=(0, 1))
FLEET = Fleet(here="head", hosts={"head": FACTS, "lab": OTHER}, is_cluster=True)
SPEC = SweepSpec(name="s", models=("squeezenet1_1",), runtimes=("onnx",), devices=("all",))


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace.init(tmp_path / "w")


def register(workspace: Workspace, name: str, kind: str, host: str | None) -> None:
    host_client = f"host: {host}\n" if host else ""
    text = f"name: {name}\nkind: {kind}\n{host_client}"
    (workspace.devices / f"{name}.yaml").write_text(text, encoding="utf-8")


def test_a_record_gives_the_fleet_back_without_serial_numbers() -> None:
    text = json.dumps(FLEET.as_record())
    assert "SERIAL" not in text
    hosts = {name: replace(facts, seen=()) for name, facts in FLEET.hosts.items()}
    assert fleet_of_record(json.loads(text)) == replace(FLEET, hosts=hosts)


@pytest.mark.parametrize(
    "record", [None, 3, {}, {"hosts": {"a": {}}}, {"hosts": 3, "here": None, "is_cluster": True}]
)
def test_a_damaged_record_says_so(record: object) -> None:
    with pytest.raises(StoreError, match="hosts"):
        fleet_of_record(record)


def test_every_host_of_a_cluster_has_its_cpu_and_the_drivers_is_the_local_one(
    workspace: Workspace,
) -> None:
    register(workspace, "phone", "simulated", "lab")
    devices = devices_of(workspace, FLEET)
    assert {d.name: host_of(d, FLEET) for d in devices.values()} == {
        "cpu-aaaaaa": "head",
        "cpu-dddddd": "lab",
        "phone": "lab",
    }
    assert devices["local-cpu"].name == "cpu-aaaaaa"


def test_a_cpu_with_a_file_is_no_second_device(workspace: Workspace) -> None:
    register(workspace, "bench", "cpu", "lab")
    register(workspace, "absent", "cpu", "cellar")
    devices = devices_of(workspace, FLEET)
    assert set(devices) == {"cpu-aaaaaa", "bench", "absent", "local-cpu"}


def test_a_device_without_a_host_needs_a_driver_on_a_device_host(workspace: Workspace) -> None:
    register(workspace, "box", "simulated", None)
    away = replace(FLEET, here=None)
    with pytest.raises(UsageError, match="box has no host") as caught:
        plan_sweep(workspace, SPEC, None, away)
    assert "devices/box.yaml" in caught.value.remedy


def test_a_cpu_is_pinned_to_the_cores_of_its_own_host(workspace: Workspace) -> None:
    setup = plan_sweep(workspace, SPEC.model_copy(update={"threads": (2,)}), None, FLEET)
    affinity = {cell.device: cell.execution.affinity for cell in setup.plan.cells}
    assert affinity["cpu-dddddd"] == (0, 1)
    places = setup.places
    assert places["cpu-dddddd"].host_hash == "ddddddeeeeee"
    assert (places["cpu-dddddd"].is_here, places["cpu-dddddd"].needs_quiet) == (False, True)


def test_without_a_cluster_a_device_of_another_host_is_skipped_with_the_remedy(
    workspace: Workspace,
) -> None:
    register(workspace, "phone", "simulated", "lab")
    setup = plan_sweep(workspace, SPEC, None)
    assert {cell.device for cell in setup.plan.cells} == {next(iter(setup.devices))}
    (skipped,) = setup.plan.skipped
    assert has(skipped.reason, "host lab", "cluster=ADDRESS")


def test_a_resume_plans_the_same_when_a_host_is_gone_or_answers_otherwise(
    workspace: Workspace,
) -> None:
    def refuses(host: str, device: DeviceSpec, execution: Execution) -> str | None:
        return "no such library there" if host == "lab" else None

    register(workspace, "box", "simulated", "lab")
    setup = plan_sweep(workspace, SPEC, None, FLEET, refuses)
    assert [s.reason for s in setup.plan.skipped] == ["no such library there"]
    path = workspace.sweeps / "s.yaml"
    path.write_text("name: s\n")
    made = new_record(
        "s-1",
        setup,
        WrittenSpec(spec=setup.spec, origin=str(path), text=path.read_text()),
        Provenance(),
    )
    record = SweepRecord.model_validate(json.loads(json.dumps(made.as_json())))
    again = setup_of_record(workspace, record)
    assert again.plan == setup.plan
    register(workspace, "box", "simulated", "head")
    with pytest.raises(UsageError, match="cannot be resumed"):
        setup_of_record(workspace, record)


def test_a_place_says_whether_its_energy_is_counted(workspace: Workspace) -> None:
    register(workspace, "h100", "cuda", "lab")
    register(workspace, "box", "simulated", "lab")
    counting = replace(FLEET, hosts={"head": FACTS, "lab": replace(OTHER, counts_energy=True)})
    places = plan_sweep(workspace, SPEC, None, counting).places
    assert {name: place.counts_energy for name, place in places.items()} == {
        "cpu-aaaaaa": False, "cpu-dddddd": True, "box": False, "h100": True,
    }  # fmt: skip


def test_this_host_alone_is_a_fleet_of_one() -> None:
    fleet = this_host()
    assert not fleet.is_cluster
    assert fleet.here is not None
    assert fleet.hosts[fleet.here].host_hash == read_host_facts().host_hash


def test_versions_that_differ_are_named_with_their_hosts() -> None:
    other = replace(OTHER, versions=(("fleetrank", "1"), ("onnxruntime", "1.23")))
    assert skew({"head": FACTS, "lab": OTHER}) == []
    (said,) = skew({"head": FACTS, "lab": other})
    assert has(said, "onnxruntime", "1.22 on head", "1.23 on lab")


def test_a_clock_that_is_off_is_named() -> None:
    off = {"a": 3600.0, "b": -2.4, "c": 1.9, "d": -1.9}
    found = skew({name: replace(OTHER, clock_ahead_s=s) for name, s in off.items()})
    assert len(found) == 2
    assert has(found[0], "clock of a", "3600 s ahead")
    assert has(found[1], "clock of b", "2 s behind")


def test_what_is_wrong_with_a_cluster_is_said_with_its_remedy() -> None:
    niced = replace(OTHER, niceness=15, host_hash=FACTS.host_hash, cpu_quota_cores=1.5)
    fleet = Fleet(here="head", hosts={"head": FACTS, "lab": niced}, is_cluster=True)
    lost = DeviceFile(name="phone", kind="simulated", host="cellar")
    found = "\n".join(find_problems(fleet, [lost], {"old": "other code"}))
    for words in (
        "old is not used: other code",
        "lab runs its workers at niceness 15",
        "RAY_worker_niceness=0",
        "lab has a CPU quota of 1.5",
        "head has the same host name and machine id",
        "phone is attached to host cellar",
    ):
        assert words in found
    assert find_problems(FLEET, [], {}) == []


def test_a_gpu_its_host_does_not_have_is_named() -> None:
    def named(**options: str) -> list[str]:
        gpu = DeviceFile(name="h100", kind="cuda", host="lab", options=options)
        hosts = {"lab": replace(OTHER, seen=(("cuda", ("GPU-8f6c1",)),))}
        return find_problems(Fleet(here="lab", hosts=hosts, is_cluster=True), [gpu], {})

    assert named(uuid="GPU-8f6c") == named() == []
    (said,) = named(uuid="GPU-00")
    assert has(said, "h100", "host lab", "GPU")


@pytest.mark.parametrize(
    ("kind", "options", "share"),
    [
        ("cpu", {}, HostShare.ALONE),
        ("cuda", {}, HostShare.ALONE),
        ("simulated", {}, HostShare.NONE),
        ("android", {"serial": "S"}, HostShare.BESIDE),
        ("android", {"serial": "S", "virtual": "imitation"}, HostShare.BESIDE),
        ("android", {"serial": "S", "virtual": "real"}, HostShare.NONE),
    ],
)
def test_what_a_device_takes_of_its_host(
    kind: str, options: dict[str, str], share: HostShare
) -> None:
    assert DeviceFile(name="d", kind=kind, options=options).spec.share is share


def test_a_host_that_does_not_answer_lends_its_cpu_to_no_name(workspace: Workspace) -> None:
    found = devices_of(workspace, Fleet(here="head", hosts={"lab": OTHER}, is_cluster=True))
    assert [device.host for device in found.values()] == ["lab"]
