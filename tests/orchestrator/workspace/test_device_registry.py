from pathlib import Path

import pytest

from fleetrank.device_agents.contract.kind import HostShare
from fleetrank.device_agents.hold import Reservation
from fleetrank.device_agents.power import Power
from fleetrank.foundation.installation import host_hash
from fleetrank.foundation.vocabulary import Origin
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.workspace.device_registry import (
    DeviceFile,
    find_device,
    load_devices,
    local_cpu,
    read_device_files,
    remove_device,
    save_device,
)
from fleetrank.orchestrator.workspace.workspace import LOCAL_CPU, Workspace

PHONE = DeviceFile(
    name="phone-1",
    kind="simulated",
    options={"tier": "edge", "noise": 0.1},
    reserve=Reservation(command=("lab", "reserve"), release=("lab", "release"), limit_s=60.0),
    power=Power(cycle=("lab", "cycle"), limit_s=9.0),
)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def test_this_hosts_cpu_is_there_without_a_file(workspace) -> None:
    devices = load_devices(workspace)
    assert devices[LOCAL_CPU] == devices[local_cpu().name]
    assert devices[LOCAL_CPU].name == f"cpu-{host_hash()[:6]}"
    assert devices[LOCAL_CPU].kind == "cpu"


def test_a_file_may_set_options_of_this_hosts_cpu(workspace) -> None:
    own = DeviceFile(name=local_cpu().name, kind="cpu", labels={"rack": "7"})
    save_device(workspace, own)
    assert load_devices(workspace)[LOCAL_CPU] == own


def test_a_device_is_saved_loaded_and_removed(workspace) -> None:
    assert save_device(workspace, PHONE).name == "phone-1.yaml"
    assert load_devices(workspace)["phone-1"] == PHONE
    with pytest.raises(UsageError, match="exists"):
        save_device(workspace, PHONE)
    remove_device(workspace, "phone-1")
    assert "phone-1" not in load_devices(workspace)


def test_a_built_in_device_has_no_file_to_remove(workspace) -> None:
    with pytest.raises(UsageError, match="built in"):
        remove_device(workspace, LOCAL_CPU)


def test_a_gpu_needs_its_host_to_itself() -> None:
    gpu = DeviceFile(name="gpu", kind="cuda", options={"uuid": "GPU-1"})
    assert gpu.traits.needs_quiet
    assert gpu.traits.share is HostShare.ALONE
    assert gpu.traits.origin is Origin.MEASURED


def test_an_unknown_device_is_answered_with_the_nearest(workspace) -> None:
    save_device(workspace, PHONE)
    with pytest.raises(UsageError) as caught:
        find_device(load_devices(workspace), "fone-1")
    assert caught.value.remedy.startswith("did you mean 'phone-1'?")
    assert "`fleetrank devices add`" in caught.value.remedy


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: other\nkind: cpu", "not the name of the file"),
        ("name: phone\nkin: cpu", "unknown key 'kin'"),
        ("name: phone\nkind: toaster", "'kind': unknown device kind 'toaster'"),
        ("name: ../phone\nkind: cpu", "'name'"),
        ("name: phone\nkind: cpu\noptions: {a: [1]}", "options"),
        (
            "name: phone\nkind: cpu\nreserve: {release: [lab]}",
            "'reserve': give either a command or",
        ),
        ("name: phone\nkind: cpu\nreserve: {labgrid: a, renew: [b]}", "needs no commands"),
        ("name: phone\nkind: cpu\nreserve: {labgrid: --kick}", "'reserve.labgrid'"),
        ("name: phone\nkind: cpu\nreserve: {command: []}", "'reserve.command': give a program"),
        ("name: phone\nkind: cpu\nreserve: {command: [a], every: 9}", "key 'reserve.every'"),
        ("name: phone\nkind: cpu\npower: {limit_s: 9}", "'power.cycle'"),
        ("name: phone\nkind: cpu\npower: {cycle: []}", "'power.cycle': give a program"),
        ("name: phone\nkind: cpu\npower: {cycle: [a], limit_s: 0}", "'power.limit_s'"),
        ("name: local-cpu\nkind: cpu", "means the CPU"),
        ("name: cpu-6b103d\nkind: simulated", "reserved for the CPU"),
    ],
)
def test_a_wrong_device_file_is_named(workspace, text, message) -> None:
    workspace.devices.mkdir()
    path = workspace.devices / "phone.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        load_devices(workspace)
    assert str(path) in caught.value.message
    assert message in caught.value.message


def test_a_file_of_ours_that_was_changed_is_warned_about_until_its_checksum_is_gone(
    tmp_path, caplog
) -> None:
    workspace = Workspace(tmp_path)
    path = save_device(workspace, DeviceFile(name="sim-a", kind="simulated", labels={"room": "1"}))
    assert read_device_files(workspace)["sim-a"].labels == {"room": "1"}
    assert caplog.text == ""
    path.write_text(path.read_text().replace("room: '1'", "room: '3'"))
    assert read_device_files(workspace)["sim-a"].labels == {"room": "3"}
    assert f"{path} differs" in caplog.text
    caplog.clear()
    path.write_text(path.read_text().partition("\n")[2])
    read_device_files(workspace)
    assert caplog.text == ""
