"""What adb sees of a virtual phone; what its faults do is seen in `tests/device_agents/android`."""

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from adb_bench import OnePhone, adb, connect, private_server
from daily import daily
from waiting import wait_until

from fleetrank.device_agents.android.adb_server import AdbServer
from fleetrank.device_agents.virtual_phone.farm import FarmSpec, VirtualFarm
from fleetrank.device_agents.virtual_phone.imitation.command import stand_in_of, stand_ins
from fleetrank.device_agents.virtual_phone.profile import Fault, Injection

pytestmark = pytest.mark.adb

TMP = "/data/local/tmp"


def test_streams_and_exit_code_of_a_command_come_apart(phone: OnePhone) -> None:
    done = phone.run("shell", "cat; echo err >&2; exit 7", stdin=b"in\0\n")
    assert (done.stdout, done.stderr, done.returncode) == (b"in\0\n", b"err\n", 7)


def test_a_phone_without_shell_v2_mixes_streams_and_tells_no_code(old_phone: OnePhone) -> None:
    done = old_phone.run("shell", "echo out; echo err >&2; exit 7")
    assert (sorted(done.stdout.split()), done.returncode) == ([b"err", b"out"], 0)


@pytest.mark.parametrize("profile", daily(["pixel-8", "nexus-5x", "nexus-5"], "nexus-5"))
def test_files_arrive_as_they_left(profile: str, adb_server: AdbServer, tmp_path: Path) -> None:
    sent, back = tmp_path / "sent", tmp_path / "back"
    for phone in connect(adb_server, tmp_path / "phones", profile):
        for size in (0, 1, 65_536, 1_500_000):
            sent.write_bytes(random.Random(size).randbytes(size))
            assert phone.run("push", str(sent), f"{TMP}/a b;$(c)").returncode == 0
            assert phone.run("pull", f"{TMP}/a b;$(c)", str(back)).returncode == 0
            assert back.read_bytes() == sent.read_bytes()


def test_a_transfer_reaches_nothing_outside_the_phone(phone: OnePhone, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("host")
    assert phone.run("pull", str(secret), str(tmp_path / "got")).returncode != 0
    assert phone.run("pull", f"../../..{secret}", str(tmp_path / "got")).returncode != 0
    assert not (tmp_path / "got").exists()
    phone.run("push", str(secret), f"/data/../../../../{tmp_path}/escaped")
    assert not (tmp_path / "escaped").exists()


def test_a_command_knows_the_phones_paths_and_nothing_of_the_daemon(
    phone: OnePhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert phone.shell("pwd; realpath data/local/tmp; echo /data/*") == f"/\n{TMP}\n/data/local\n"
    monkeypatch.setenv("SECRET_OF_THE_DAEMON", "1")
    seen = phone.shell("env")
    assert "SECRET" not in seen
    assert str(phone.bench.farmed.folder) not in seen


def test_the_phone_answers_as_its_profile_says(phone: OnePhone) -> None:
    serial = phone.bench.farm.phones[0].serial
    assert phone.shell("getprop ro.product.model") == "Pixel 8\n"
    assert phone.shell("getprop ro.serialno") == f"{serial}\n"
    assert phone.shell("getprop ro.fleetrank.virtual") == "canned\n"
    assert phone.shell("getprop no.such.name; getprop a/../ro.serialno") == "\n\n"
    assert phone.shell("cat /sys/devices/system/cpu/cpu8/cpufreq/cpuinfo_max_freq") == "2914000\n"
    assert "Current temperatures from HAL" in phone.shell("dumpsys thermalservice")
    assert "mWakefulness=Awake" in phone.shell("dumpsys power")
    assert phone.shell("df -k /data").splitlines()[1].split()[-1] == "/data"
    assert b"model:Pixel_8" in adb(phone.bench.phone.server, "devices", "-l").stdout


@pytest.mark.thorough
def test_another_users_key_opens_nothing(phone: OnePhone, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with private_server(phone.bench.phone.server.adb, tmp_path / "other") as other:
        adb(other, "connect", phone.address)
        assert b"unauthorized" in adb(other, "devices").stdout
        assert adb(other, "-s", phone.address, "shell", "echo in").stdout == b""
    assert phone.shell("echo in") == "in\n"


@pytest.mark.thorough
def test_many_phones_of_one_process_answer_at_once(adb_server: AdbServer, tmp_path: Path) -> None:
    spec = FarmSpec(folder=tmp_path, count=12, key_file=Path.home() / ".android/adbkey.pub")
    with VirtualFarm(spec) as farm, ThreadPoolExecutor(6) as pool:
        addresses = [phone.address for phone in farm.phones]
        list(pool.map(lambda address: adb(adb_server, "connect", address), addresses))
        serials = pool.map(
            lambda address: adb(adb_server, "-s", address, "shell", "getprop ro.serialno").stdout,
            addresses,
        )
        assert [serial.decode().strip() for serial in serials] == [p.serial for p in farm.phones]
        assert len({phone.serial for phone in farm.phones}) == 12
        for address in addresses:
            adb(adb_server, "disconnect", address)


@pytest.mark.thorough
def test_a_phone_started_again_is_the_same_one(adb_server: AdbServer, tmp_path: Path) -> None:
    for phone in connect(adb_server, tmp_path, "redmi-note-10"):
        phone.shell(f"echo kept > {TMP}/file; settings put global a 1")
        serial = phone.bench.farm.phones[0].serial
    for phone in connect(adb_server, tmp_path, "redmi-note-10"):
        assert phone.bench.farm.phones[0].serial == serial
        assert phone.shell(f"cat {TMP}/file; settings get global a") == "kept\n1\n"


def test_phones_of_two_models_are_two_phones(tmp_path: Path) -> None:
    serials = set()
    for profile in ("pixel-8", "galaxy-s21"):
        with VirtualFarm(FarmSpec(folder=tmp_path / profile, profiles=(profile,))) as farm:
            serials.add(farm.phones[0].serial)
    assert len(serials) == 2


def test_phones_listen_on_this_computer_only(tmp_path: Path) -> None:
    with VirtualFarm(FarmSpec(folder=tmp_path)) as farm:
        assert farm.phones[0].address.startswith("127.0.0.1:")


def test_hostile_names_are_offered_and_write_nothing_elsewhere(
    phone: OnePhone, tmp_path: Path
) -> None:
    phone.shell(f"mkdir {TMP}/d; echo a > {TMP}/d/a")
    phone.bench.farm.inject(0, Fault.HOSTILE_NAMES)
    assert phone.run("ls", f"{TMP}/d").returncode != 0  # adb itself stops at such a name
    phone.run("pull", f"{TMP}/d", str(tmp_path / "deep/er"))
    escaped = [
        path for path in tmp_path.rglob("escaped") if phone.bench.farmed.folder not in path.parents
    ]
    assert not escaped
    assert not Path("/tmp/escaped").exists()
    phone.bench.farm.clear(0, Fault.HOSTILE_NAMES)
    assert phone.run("ls", f"{TMP}/d").returncode == 0


def test_a_schedule_strikes_at_its_time(phone: OnePhone) -> None:
    phone.bench.farm.schedule(
        [Injection(after_s=0.3, phone=0, fault=Fault.BATTERY_LOW, duration_s=30.0)]
    )
    assert "level: 84" in phone.shell("dumpsys battery")
    wait_until(lambda: "level: 12" in phone.shell("dumpsys battery"), "the fault")


def test_every_runner_has_a_stand_in_that_runs_nowhere_else() -> None:
    for tool in stand_ins():
        assert stand_in_of(tool).stat().st_mode & 0o111
