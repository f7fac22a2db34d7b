"""A virtual phone registered with options of a person's own, and cleaned when it is removed."""

import hashlib
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from adb_bench import AdbBench, free_port, given_stand_ins, open_bench

from fleetrank.device_agents.android.adb_server import AdbServer, find_adb
from fleetrank.device_agents.android.agent import AndroidAgent
from fleetrank.device_agents.android.execution.program_store import ProgramStore
from fleetrank.device_agents.android.phone_registration import NewPhone, PhoneRegistrar
from fleetrank.device_agents.android.state.phone_cores import Core
from fleetrank.device_agents.android.state.phone_lock import phone_lease
from fleetrank.device_agents.android.state.probe_text import facts_of_sections
from fleetrank.device_agents.android.state.settings import settings_for_measuring
from fleetrank.device_agents.contract.kind import CanaryFile, RegistrationRequest
from fleetrank.device_agents.contract.task import OptionValue
from fleetrank.device_agents.errors import MissingLibraryError, UnsupportedError
from fleetrank.foundation.errors import FleetError
from fleetrank.orchestrator.errors import NothingToDoError, UsageError
from fleetrank.orchestrator.workspace.device_registry import DeviceFile
from fleetrank.orchestrator.workspace.registration import NewDevice, RegistrationDesk, clean_device

pytestmark = pytest.mark.adb

NO_OPTIONS: Mapping[str, OptionValue] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """A phone on it, and what registers phones."""

    bench: AdbBench
    desk: RegistrationDesk

    def register(
        self, *known: DeviceFile, options: Mapping[str, OptionValue] = NO_OPTIONS
    ) -> DeviceFile:
        return self.register_as(None, *known, options=options)

    def register_as(
        self, name: str | None, *known: DeviceFile, options: Mapping[str, OptionValue] = NO_OPTIONS
    ) -> DeviceFile:
        request = RegistrationRequest(
            address=self.bench.phone.serial, options=options, programs=given_stand_ins()
        )
        new = NewDevice(kind="android", request=request, name=name)
        return self.desk.register(PhoneRegistrar({}), new, known)

    @property
    def folder(self) -> Path:
        return self.bench.farmed.folder / "data/local/tmp/fleetrank"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    try:
        adb = find_adb()
    except MissingLibraryError as error:
        pytest.skip(error.message)
    home, port = tmp_path / "home", free_port()
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(port))
    monkeypatch.setenv("ADB_LIBUSB", "0")  # starts at once instead of in 3 s
    monkeypatch.setenv("ADB_LOCAL_TRANSPORT_MAX_PORT", "5554")  # looks for no emulators
    server = AdbServer(adb, port)
    server.start()
    canary = tmp_path / "canary.tflite"
    canary.write_bytes(b"\0\0\0\0TFL3 canned latencies are made of this")
    sha256 = hashlib.sha256(canary.read_bytes()).hexdigest()
    registration = RegistrationDesk(
        canary=lambda: CanaryFile(path=str(canary), sha256=sha256), say=lambda _: None
    )
    with open_bench(server, tmp_path / "phones", home) as bench:
        yield Desk(bench=bench, desk=registration)
    kill = [str(adb), "-P", str(port), "kill-server"]
    subprocess.run(kill, check=False, timeout=30, capture_output=True)


def test_an_option_no_phone_has_is_refused_by_name(desk: Desk) -> None:
    with pytest.raises(NothingToDoError, match="no option 'max_wait'") as caught:
        desk.register(options={"max_wait": 5.0})
    assert {"max_wait_s", "settle_s"} <= set(caught.value.remedy.replace(",", "").split())


@pytest.mark.thorough
def test_a_phone_on_the_network_is_found_again_when_adb_has_forgotten_it(desk: Desk) -> None:
    device = desk.register()
    desk.bench.phone.server.disconnect(desk.bench.phone.serial)
    assert AndroidAgent(device.options).probe().device_model == "Google Pixel 8"


@pytest.mark.parametrize(
    ("name", "problem"), [("box", "device 'box' already exists"), ("../box", "key 'name'")]
)
def test_a_name_that_cannot_be_had_is_refused_before_anything_runs(
    desk: Desk, name: str, problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        desk.register_as(name, DeviceFile(name="box", kind="cpu"))
    assert not desk.folder.exists()


def test_checking_a_phone_finds_another_one_at_its_address(desk: Desk) -> None:
    options = {"serial": desk.bench.phone.serial, "serial_hash": "0" * 64}
    device = DeviceFile(name="mine", kind="android", options=options)
    with pytest.raises(NothingToDoError, match="not the registered phone"):
        desk.desk.check(device)


def test_a_phone_in_use_stays_and_a_removed_one_has_what_a_crash_left_restored(desk: Desk) -> None:
    device, phone = desk.register(DeviceFile(name="pixel-8", kind="cpu")), desk.bench.phone
    assert device.name == "pixel-8-2", "the other device of the model's name keeps it"
    with (
        phone_lease(str(device.options["unit_hash"])),
        pytest.raises(FleetError, match="in use"),
    ):
        clean_device(device)
    assert desk.folder.exists()
    asked = 'settings get global "$1"', "heads_up_notifications_enabled"
    before = phone.shell(*asked, timeout_s=20).stdout
    with settings_for_measuring(phone):
        assert phone.shell(*asked, timeout_s=20).stdout != before
        clean_device(device)
        assert phone.shell(*asked, timeout_s=20).stdout == before
        assert not desk.folder.exists()


@pytest.mark.parametrize(
    ("has_taskset", "khz", "clusters"),
    [
        (True, (3, 3, 9, 9), ((2, 3), (0, 1))),
        (True, (3, 3, 9, None), ()),
        (True, (None, None, None, None), ((0, 1, 2, 3),)),
        (False, (3, 3, 9, 9), ()),
    ],
)
def test_a_phone_is_pinned_only_while_all_its_cores_are_there(
    has_taskset: bool, khz: tuple[int | None, ...], clusters: tuple[tuple[int, ...], ...]
) -> None:
    cores = tuple(Core(number=number, max_khz=clock) for number, clock in enumerate(khz))
    facts = facts_of_sections({}, has_exit_codes=True)
    facts = replace(facts, has_taskset=has_taskset, cores=cores)
    request = RegistrationRequest(address="S")
    phone = NewPhone(request=request, found=facts, store=ProgramStore(), say=print)
    assert tuple(one.cores for one in phone.clusters) == clusters


@pytest.mark.parametrize(
    ("abis", "says"),
    [
        (("arm64-v8a", "armeabi-v7a"), "download https.*/android_aarch64_benchmark_model yourself"),
        (("x86_64",), "^give a file"),
    ],
)
def test_a_phone_without_any_program_is_refused_with_what_to_give(
    abis: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    facts = replace(facts_of_sections({}, has_exit_codes=True), abis=abis)
    request = RegistrationRequest(address="S")
    phone = NewPhone(request=request, found=facts, store=ProgramStore(tmp_path), say=print)
    with pytest.raises(UnsupportedError, match=f"benchmark_model .*{', '.join(abis)}") as caught:
        phone.options({})
    assert re.search(f"{says}.*`tool=benchmark_model=PATH`", caught.value.remedy)


def test_an_option_given_once_stays_when_the_phone_is_registered_anew(tmp_path: Path) -> None:
    """But not its server, at which the phone need not be any more."""
    before = {"benchmark_model": "0" * 64, "max_wait_s": 5.0, "settle_s": 3.0, "adb_server": "b:1"}
    request = RegistrationRequest(address="S", options={"settle_s": 4.0})
    facts = facts_of_sections({}, has_exit_codes=True)
    phone = NewPhone(request=request, found=facts, store=ProgramStore(tmp_path), say=print)
    found = phone.options(before)
    assert [found.get(name) for name in before] == ["0" * 64, 5.0, 4.0, None]
