"""A sweep goes on with the devices it began with, or not at all."""

from pathlib import Path

import pytest

from fleetrank.analysis.stored.sweep_record import Provenance, SweepRecord
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.sweep import sweep_setup
from fleetrank.orchestrator.sweep.fleet import Fleet
from fleetrank.orchestrator.sweep.sweep_argument import find_sweep
from fleetrank.orchestrator.sweep.sweep_run import WrittenSpec, new_record, setup_of_record
from fleetrank.orchestrator.sweep.sweep_setup import Setup, plan_sweep
from fleetrank.orchestrator.workspace.device_registry import (
    DeviceFile,
    Registration,
    save_device,
    update_device,
)
from fleetrank.orchestrator.workspace.sweep_spec import load_spec
from fleetrank.orchestrator.workspace.workspace import Workspace

REGISTRATION = Registration(
    registered_utc="2026-01-01T00:00:00+00:00",
    facts={"build": "1"},
    clusters=((4, 5), (0, 1, 2, 3)),
    canary_latency_ns=(1000, 1010),
)
PHONE = DeviceFile(
    name="phone",
    kind="android",
    options={"serial": "1", "benchmark_model": "0" * 64},
    registration=REGISTRATION,
)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    workspace = Workspace.init(tmp_path / "w")
    save_device(workspace, PHONE)
    return workspace


def resume_with(workspace: Workspace, phone: DeviceFile) -> Setup:
    """Begins a sweep, changes the phone, and goes on."""
    path = workspace.sweeps / "s.yaml"
    path.write_text("{name: s, models: [resnet18], runtimes: [tflite], devices: [phone]}\n")
    setup = plan_sweep(workspace, load_spec(path), None)
    record = new_record(
        "s-1",
        setup,
        WrittenSpec(spec=setup.spec, origin=str(path), text=path.read_text()),
        Provenance(),
    )
    update_device(workspace, phone)
    return setup_of_record(workspace, record)


def test_the_place_of_each_device_is_found_once_however_many_cells_it_has(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        save_device(workspace, DeviceFile(name=f"sim-{number}", kind="simulated"))
    path = workspace.sweeps / "s.yaml"
    path.write_text("{name: s, models: all, runtimes: [onnx], devices: [all]}\n")
    looked_up: list[str] = []
    find = sweep_setup.host_of

    def counted(device: DeviceFile, fleet: Fleet) -> str:
        looked_up.append(device.name)
        return find(device, fleet)

    setup = plan_sweep(workspace, load_spec(path), None)
    monkeypatch.setattr(sweep_setup, "host_of", counted)
    origins = [setup.places[cell.device].origin for cell in setup.plan.cells]
    assert len(origins) > 200
    assert len(looked_up) <= len(setup.devices)


def test_a_phone_registered_anew_that_is_the_same_goes_on(workspace: Workspace) -> None:
    again = REGISTRATION.model_copy(update={"registered_utc": "2026-02-02T00:00:00+00:00"})
    labelled = {"registration": again, "labels": {"rack": "2"}}
    assert resume_with(workspace, PHONE.model_copy(update=labelled)).plan.cells


@pytest.mark.parametrize(
    "change",
    [
        {"options": {**PHONE.options, "min_battery_percent": 20.0}},
        {"options": {**PHONE.options, "benchmark_model": "1" * 64}},
        {"registration": REGISTRATION.model_copy(update={"facts": {"build": "2"}})},
        {"registration": REGISTRATION.model_copy(update={"canary_latency_ns": (2000, 2010)})},
    ],
)
def test_a_phone_that_has_changed_ends_the_sweep(
    workspace: Workspace, change: dict[str, object]
) -> None:
    with pytest.raises(UsageError, match=f"changed.*: device {PHONE.name} "):
        resume_with(workspace, PHONE.model_copy(update=change))


@pytest.fixture
def stored(workspace: Workspace) -> ResultStore:
    """Two sweeps of `nightly`, one of the file `weekly.yaml`, whose sweep is called `long-one`."""
    store = ResultStore(workspace.results)
    for sweep_id in (
        "nightly-20260101T000000-ffff",
        "long-one-20260102T000000-0002",
        "nightly-20260103T000000-0001",
    ):
        store.create_sweep(SweepRecord.model_validate({"sweep_id": sweep_id}))
    rest = "models: [resnet18], runtimes: [tflite], devices: [phone]}\n"
    (workspace.sweeps / "nightly.yaml").write_text("{name: nightly, " + rest)
    (workspace.sweeps / "weekly.yaml").write_text("{name: long-one, " + rest)
    return store


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (None, "nightly-20260103T000000-0001"),
        ("latest", "nightly-20260103T000000-0001"),
        ("previous", "nightly-20260101T000000-ffff"),
        ("nightly-20260101T000000-ffff", "nightly-20260101T000000-ffff"),
        ("nightly", "nightly-20260103T000000-0001"),
        ("sweeps/nightly.yaml", "nightly-20260103T000000-0001"),
        ("gone/nightly.yaml", "nightly-20260103T000000-0001"),
        ("weekly", "long-one-20260102T000000-0002"),
        ("long-one", "long-one-20260102T000000-0002"),
    ],
)
def test_a_sweep_is_found_by_id_file_and_name(
    workspace: Workspace, stored: ResultStore, given: str | None, found: str
) -> None:
    assert find_sweep(workspace, stored, given) == found


def test_the_previous_sweep_is_of_the_same_name(workspace: Workspace, stored: ResultStore) -> None:
    with pytest.raises(UsageError, match="older than long-one-"):
        find_sweep(workspace, stored, "previous", before="long-one-20260102T000000-0002")


def test_a_name_that_means_two_sweeps_or_none_is_refused(
    workspace: Workspace, stored: ResultStore
) -> None:
    with pytest.raises(UsageError, match="'nigthly' does not exist") as caught:
        find_sweep(workspace, stored, "nigthly")
    assert caught.value.remedy == "did you mean 'nightly'?"
    (workspace.sweeps / "weekly.yaml").rename(workspace.sweeps / "nightly.yaml")
    with pytest.raises(UsageError, match="'nightly' means 2 sweeps") as caught:
        find_sweep(workspace, stored, "nightly")
    assert "long-one-20260102T000000-0002" in caught.value.remedy
    assert "nightly-20260103T000000-0001" in caught.value.remedy
