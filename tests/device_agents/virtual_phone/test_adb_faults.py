"""What a client of adb sees of a phone in trouble."""

import random
import subprocess
import time
from pathlib import Path

import pytest
from adb_bench import OnePhone
from waiting import wait_until

from fleetrank.device_agents.virtual_phone.imitation.command import stand_in_of, stand_ins
from fleetrank.device_agents.virtual_phone.profile import Fault, Injection

pytestmark = pytest.mark.adb

TMP = "/data/local/tmp"
FLEETRANK = f"{TMP}/fleetrank"
TFLITE = Path(__file__).parents[1] / "data/tiny.tflite"


def state_of(phone: OnePhone) -> str:
    lines = phone.adb.run("devices").stdout.decode().splitlines()
    return next((line.split()[1] for line in lines if line.startswith(phone.address)), "absent")


def wait_for_state(phone: OnePhone, state: str, limit_s: float = 60.0) -> None:
    """The server looks for a lost phone every second or two; connecting again is quicker.

    The phone is `offline` until the two have greeted each other, for longer on a busy machine.
    """
    end_s, patience_s = time.monotonic() + limit_s, 0.05
    while state_of(phone) != state and time.monotonic() < end_s:
        phone.adb.run("disconnect", phone.address)
        phone.adb.run("connect", phone.address)
        greeted_s = time.monotonic() + patience_s
        while state_of(phone) != state and time.monotonic() < greeted_s:
            time.sleep(0.02)
        patience_s = min(2 * patience_s, 2.0)
    assert state_of(phone) == state


def benchmark(phone: OnePhone) -> subprocess.CompletedProcess[bytes]:
    """Pushes tool and artifact, once, and runs them."""
    tool, model = f"{FLEETRANK}/tools/benchmark_model", f"{FLEETRANK}/artifacts/m.tflite"
    phone.run("push", str(stand_in_of("benchmark_model")), tool)
    phone.run("push", str(TFLITE), model)
    result = f"{TMP}/r.pb"
    return phone.run("shell", f"rm -f {result}; {tool} --graph={model} --result_file_path={result}")


def has_result(phone: OnePhone) -> bool:
    return phone.shell(f"[ -s {TMP}/r.pb ] && echo yes") == "yes\n"


def test_a_phone_that_accepts_no_key_is_unauthorized_until_it_does(phone: OnePhone) -> None:
    phone.farm.inject(0, Fault.UNAUTHORIZED)
    wait_for_state(phone, "unauthorized")
    assert phone.run("shell", "echo in").stdout == b""
    phone.farm.clear(0, Fault.UNAUTHORIZED)
    wait_for_state(phone, "device")
    assert phone.shell("echo in") == "in\n"


def test_a_phone_that_does_not_greet_is_offline_or_not_there(phone: OnePhone) -> None:
    phone.farm.inject(0, Fault.OFFLINE)
    wait_until(lambda: state_of(phone) in ("offline", "absent"), "a phone that is away")
    assert phone.run("shell", "echo in").stdout == b""
    phone.farm.clear(0, Fault.OFFLINE)
    wait_for_state(phone, "device")
    assert phone.shell("echo in") == "in\n"


def test_a_push_that_is_cut_fails_once_and_leaves_no_file(phone: OnePhone, tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    sent.write_bytes(random.Random(0).randbytes(500_000))
    phone.farm.inject(0, Fault.DROP_PUSH)
    assert phone.run("push", str(sent), f"{TMP}/file").returncode != 0
    wait_for_state(phone, "device")
    assert phone.shell(f"ls -A {TMP}") == ""
    assert phone.run("push", str(sent), f"{TMP}/file").returncode == 0
    assert phone.shell(f"wc -c < {TMP}/file").strip() == "500000"


def test_a_run_that_is_cut_fails_once(phone: OnePhone) -> None:
    phone.farm.inject(0, Fault.DROP_RUN)
    assert phone.shell("echo no run") == "no run\n"
    # Only the output tells: adb 36 exits with 255, adb 29 with 0.
    assert b"Inference (avg)" not in benchmark(phone).stdout
    wait_for_state(phone, "device")
    assert b"Inference (avg)" in benchmark(phone).stdout


def test_a_phone_that_hangs_answers_nobody_and_then_goes_on(phone: OnePhone) -> None:
    phone.farm.inject(0, Fault.HANG)
    with pytest.raises(subprocess.TimeoutExpired):
        phone.run("shell", "echo in", limit_s=0.5)
    phone.farm.clear(0, Fault.HANG)
    assert phone.shell("echo in") == "in\n"


@pytest.mark.parametrize("way", ["fault", "adb reboot"])
def test_a_phone_that_restarts_comes_back_before_it_is_ready(
    phone: OnePhone, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy host takes a second to connect, and would find the phone ready.
    monkeypatch.setattr("fleetrank.device_agents.virtual_phone.virtual_phone.BOOT_S", 3.0)
    facts = "getprop sys.boot_completed; cat /proc/sys/kernel/random/boot_id"
    ready, boot = phone.shell(facts).splitlines()
    assert ready == "1"
    if way == "fault":
        phone.farm.inject(0, Fault.REBOOT, duration_s=0.2)
    else:
        phone.run("reboot")
    wait_for_state(phone, "device")
    assert phone.shell("getprop sys.boot_completed") == "\n"
    end_s = time.monotonic() + 10
    while phone.shell("getprop sys.boot_completed") != "1\n":
        assert time.monotonic() < end_s
    assert phone.shell(facts).splitlines()[1] != boot
    assert float(phone.shell("cat /proc/uptime").split()[0]) < 60


def test_a_full_phone_takes_no_file_and_says_why(phone: OnePhone) -> None:
    phone.farm.inject(0, Fault.STORAGE_FULL)
    refused = phone.run("push", str(TFLITE), f"{TMP}/m")
    assert refused.returncode != 0
    assert b"No space left on device" in refused.stdout + refused.stderr
    assert phone.shell("df -k /data").splitlines()[1].split()[3] == "0"
    phone.farm.clear(0, Fault.STORAGE_FULL)
    assert phone.run("push", str(TFLITE), f"{TMP}/m").returncode == 0


def test_a_phone_can_lose_its_exit_codes(phone: OnePhone) -> None:
    phone.farm.inject(0, Fault.NO_EXIT_CODES)
    wait_for_state(phone, "device")
    deadline_s = time.monotonic() + 10
    while "shell_v2" in phone.run("features").stdout.decode() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert phone.run("shell", "echo out; exit 7").returncode == 0


def test_the_clock_of_a_phone_can_jump(phone: OnePhone) -> None:
    before_s = int(phone.shell("date +%s"))
    phone.farm.inject(0, Fault.CLOCK_JUMP)
    assert int(phone.shell("date +%s")) - before_s in range(86_400, 86_460)


def test_hostile_names_are_offered_and_write_nothing_elsewhere(
    phone: OnePhone, tmp_path: Path
) -> None:
    phone.shell(f"mkdir {TMP}/d; echo a > {TMP}/d/a")
    phone.farm.inject(0, Fault.HOSTILE_NAMES)
    assert phone.run("ls", f"{TMP}/d").returncode != 0  # adb itself stops at such a name
    phone.run("pull", f"{TMP}/d", str(tmp_path / "deep/er"))
    escaped = [path for path in tmp_path.rglob("escaped") if phone.folder not in path.parents]
    assert not escaped
    assert not Path("/tmp/escaped").exists()
    phone.farm.clear(0, Fault.HOSTILE_NAMES)
    assert phone.run("ls", f"{TMP}/d").returncode == 0


@pytest.mark.parametrize(
    ("fault", "command", "sign"),
    [
        (Fault.THROTTLED, "dumpsys thermalservice", "Thermal Status: 2"),
        (Fault.HOT, "dumpsys battery", "temperature: 462"),
        (Fault.BATTERY_LOW, "dumpsys battery", "level: 12"),
    ],
)
def test_conditions_come_and_go(phone: OnePhone, fault: Fault, command: str, sign: str) -> None:
    assert sign not in phone.shell(command)
    phone.farm.inject(0, fault)
    assert sign in phone.shell(command)
    phone.farm.clear(0, fault)
    assert sign not in phone.shell(command)


def test_a_fault_of_some_time_ends_by_itself(phone: OnePhone) -> None:
    phone.farm.inject(0, Fault.HOT, duration_s=1.0)
    assert "temperature: 462" in phone.shell("dumpsys battery")
    wait_until(lambda: "temperature: 462" not in phone.shell("dumpsys battery"), "its end")


def test_a_throttled_phone_is_slower(phone: OnePhone) -> None:
    def mean_us() -> float:
        return float(benchmark(phone).stdout.decode().partition("Inference (avg): ")[2].split()[0])

    cool_us = mean_us()
    phone.farm.inject(0, Fault.THROTTLED)
    assert mean_us() == pytest.approx(cool_us / 0.6, rel=0.01)


def test_a_runner_fails_in_four_ways_and_each_once(phone: OnePhone) -> None:
    whole = benchmark(phone)
    assert (whole.returncode, has_result(phone)) == (0, True)
    phone.farm.inject(0, Fault.RUNNER_CRASH)
    assert benchmark(phone).returncode == 139
    phone.farm.inject(0, Fault.HALF_OUTPUT)
    half = benchmark(phone)
    assert (half.returncode, has_result(phone)) == (0, False)
    assert whole.stdout.startswith(half.stdout)
    phone.farm.inject(0, Fault.OTHER_VERSION)
    assert b"no stats" in benchmark(phone).stdout
    assert not has_result(phone)
    phone.farm.inject(0, Fault.GARBAGE_OUTPUT)
    assert b"count=" not in benchmark(phone).stdout
    assert has_result(phone)
    assert benchmark(phone).stdout == whole.stdout


def test_a_schedule_strikes_at_its_time(phone: OnePhone) -> None:
    phone.farm.schedule([Injection(after_s=0.3, phone=0, fault=Fault.BATTERY_LOW, duration_s=30.0)])
    assert "level: 84" in phone.shell("dumpsys battery")
    wait_until(lambda: "level: 12" in phone.shell("dumpsys battery"), "the fault")


def test_every_runner_has_a_stand_in_that_runs_nowhere_else() -> None:
    for tool in stand_ins():
        assert stand_in_of(tool).stat().st_mode & 0o111
