"""What a client of adb sees of a phone in order."""

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from adb_bench import Adb, OnePhone, connect, serve_adb

from fleetrank.device_agents.virtual_phone.farm import FarmSpec, VirtualFarm

pytestmark = pytest.mark.adb

TMP = "/data/local/tmp"


def wait_until(is_true: Callable[[], bool], limit_s: float = 5.0) -> bool:
    end_s = time.monotonic() + limit_s
    while time.monotonic() < end_s:
        if is_true():
            return True
        time.sleep(0.02)
    return False


def test_streams_and_exit_code_of_a_command_come_apart(phone: OnePhone) -> None:
    done = phone.run("shell", "cat; echo err >&2; exit 7", stdin=b"in\0\n")
    assert (done.stdout, done.stderr, done.returncode) == (b"in\0\n", b"err\n", 7)


def test_a_signal_is_an_exit_code(phone: OnePhone) -> None:
    assert phone.run("shell", "kill -9 $$").returncode == 137


def test_a_phone_without_shell_v2_mixes_streams_and_tells_no_code(old_phone: OnePhone) -> None:
    done = old_phone.run("shell", "echo out; echo err >&2; exit 7")
    assert (sorted(done.stdout.split()), done.returncode) == ([b"err", b"out"], 0)


@pytest.mark.parametrize("profile", ["pixel-8", "nexus-5x", "nexus-5"])
def test_files_arrive_as_they_left(profile: str, adb: Adb, tmp_path: Path) -> None:
    sent, back = tmp_path / "sent", tmp_path / "back"
    for phone in connect(adb, tmp_path / "phones", profile):
        for size in (0, 1, 65_536, 1_500_000):
            sent.write_bytes(random.Random(size).randbytes(size))
            assert phone.run("push", str(sent), f"{TMP}/a b;$(c)").returncode == 0
            assert phone.run("pull", f"{TMP}/a b;$(c)", str(back)).returncode == 0
            assert back.read_bytes() == sent.read_bytes()


def test_a_folder_goes_both_ways_with_its_modes(phone: OnePhone, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub/run").write_text("#!/bin/sh\necho ran\n")
    (tree / "sub/run").chmod(0o755)
    (tree / "plain").write_text("text")
    assert phone.run("push", str(tree), TMP).returncode == 0
    assert phone.shell(f"{TMP}/tree/sub/run") == "ran\n"
    assert phone.run("pull", f"{TMP}/tree", str(tmp_path / "back")).returncode == 0
    assert (tmp_path / "back/plain").read_text() == "text"
    assert (tmp_path / "back/sub/run").exists()


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
    assert phone.shell("realpath /data/local/tmp; echo /data/*") == f"{TMP}\n/data/local\n"
    monkeypatch.setenv("SECRET_OF_THE_DAEMON", "1")
    seen = phone.shell("env")
    assert "SECRET" not in seen
    assert str(phone.folder) not in seen


def test_the_root_of_the_phone_is_called_as_on_a_phone(phone: OnePhone) -> None:
    assert phone.shell("pwd; cd data && pwd") == "/\n/data\n"


def test_the_phone_answers_as_its_profile_says(phone: OnePhone) -> None:
    serial = phone.farm.phones[0].serial
    assert phone.shell("getprop ro.product.model") == "Pixel 8\n"
    assert phone.shell("getprop ro.serialno") == f"{serial}\n"
    assert phone.shell("getprop ro.fleetrank.virtual") == "canned\n"
    assert phone.shell("getprop no.such.name; getprop a/../ro.serialno") == "\n\n"
    assert phone.shell("cat /sys/devices/system/cpu/cpu8/cpufreq/cpuinfo_max_freq") == "2914000\n"
    assert "Current temperatures from HAL" in phone.shell("dumpsys thermalservice")
    assert "mWakefulness=Awake" in phone.shell("dumpsys power")
    assert phone.shell("df -k /data").splitlines()[1].split()[-1] == "/data"
    assert b"model:Pixel_8" in phone.adb.run("devices", "-l").stdout


def test_a_setting_is_kept_and_can_be_restored(phone: OnePhone) -> None:
    key = "stay_on_while_plugged_in"
    assert phone.shell(f"settings get global {key}") == "null\n"
    phone.shell("svc power stayon true")
    assert phone.shell(f"settings get global {key}") == "7\n"
    phone.shell(f"settings put global {key} 'a b'; settings put system x 1")
    assert phone.shell("settings list global") == f"{key}=a b\n"
    phone.shell(f"settings delete global {key}")
    assert phone.shell(f"settings get global {key}") == "null\n"


def test_what_a_test_has_overridden_shows_until_it_is_reset(phone: OnePhone) -> None:
    thermal = "dumpsys thermalservice | grep -E 'IsStatus|^Thermal S'"
    phone.shell("cmd thermalservice override-status 4; dumpsys battery set level 7")
    assert phone.shell(thermal) == "IsStatusOverride: true\nThermal Status: 4\n"
    assert "UPDATES STOPPED" in phone.shell("dumpsys battery")
    assert "level: 7\n" in phone.shell("dumpsys battery")
    phone.shell("cmd thermalservice reset; dumpsys battery reset")
    assert phone.shell(thermal) == "IsStatusOverride: false\nThermal Status: 0\n"
    assert "level: 84\n" in phone.shell("dumpsys battery")


def test_a_mask_is_judged_by_the_phones_cores(phone: OnePhone) -> None:
    assert phone.shell("taskset 100 echo ran") == "ran\n"
    assert phone.run("shell", "taskset e00 echo ran").returncode == 1
    assert phone.run("shell", "taskset 'x;y' echo ran").returncode == 1


def test_the_log_gives_the_lines_of_a_tag(phone: OnePhone) -> None:
    phone.shell("log -t One first; log -t Two second; log -t One 'a: b'")
    lines = phone.shell("logcat -d -s One:I").splitlines()[1:]
    assert [line.partition(" I ")[2] for line in lines] == ["One: first", "One: a: b"]
    phone.shell("logcat -c")
    assert "One" not in phone.shell("logcat -d")


def test_a_command_ends_with_its_client(phone: OnePhone) -> None:
    client = phone.adb.start("-s", phone.address, "shell", "echo $$; sleep 300")
    pid = int(client.stdout.readline())
    assert Path(f"/proc/{pid}").exists()
    client.kill()
    client.communicate()
    assert wait_until(lambda: not Path(f"/proc/{pid}").exists())


def test_a_command_in_the_background_does_not_hold_the_shell(phone: OnePhone) -> None:
    done = phone.run("shell", "sleep 300 & echo $!", limit_s=5.0)
    pid = int(done.stdout)
    assert wait_until(lambda: not Path(f"/proc/{pid}").exists())


def test_another_users_key_opens_nothing(phone: OnePhone, tmp_path: Path) -> None:
    for other in serve_adb(phone.adb.binary, tmp_path / "other"):
        other.run("connect", phone.address)
        seen = other.run("devices").stdout
        assert b"unauthorized" in seen
        assert other.run("-s", phone.address, "shell", "echo in").stdout == b""
    assert phone.shell("echo in") == "in\n"


def test_without_a_key_nobody_comes_in(adb: Adb, tmp_path: Path) -> None:
    with VirtualFarm(FarmSpec(folder=tmp_path, key_file=tmp_path / "none")) as farm:
        adb.run("connect", farm.phones[0].address)
        assert adb.run("-s", farm.phones[0].address, "shell", "echo in").stdout == b""
        adb.run("disconnect", farm.phones[0].address)


def test_many_phones_of_one_process_answer_at_once(adb: Adb, tmp_path: Path) -> None:
    spec = FarmSpec(folder=tmp_path, count=12, key_file=adb.key_file)
    with VirtualFarm(spec) as farm, ThreadPoolExecutor(6) as pool:
        addresses = [phone.address for phone in farm.phones]
        list(pool.map(lambda address: adb.run("connect", address), addresses))
        serials = pool.map(
            lambda address: adb.run("-s", address, "shell", "getprop ro.serialno").stdout, addresses
        )
        assert [serial.decode().strip() for serial in serials] == [p.serial for p in farm.phones]
        assert len({phone.serial for phone in farm.phones}) == 12
        for address in addresses:
            adb.run("disconnect", address)


def test_a_phone_started_again_is_the_same_one(adb: Adb, tmp_path: Path) -> None:
    for phone in connect(adb, tmp_path, "redmi-note-10"):
        phone.shell(f"echo kept > {TMP}/file; settings put global a 1")
        serial = phone.farm.phones[0].serial
    for phone in connect(adb, tmp_path, "redmi-note-10"):
        assert phone.farm.phones[0].serial == serial
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
