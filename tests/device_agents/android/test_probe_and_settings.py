"""What is asked of a phone and set on it, through the real adb, against the virtual phone."""

import subprocess
import sys
from pathlib import Path

import pytest
from adb_bench import AdbBench
from phone_farm.faults import Fault

from fleetrank.device_agents.android.phone import Phone
from fleetrank.device_agents.android.state.fitness import (
    PhoneRules,
    read_phone_conditions,
    why_unfit,
)
from fleetrank.device_agents.android.state.identity import VirtualMode, probe_phone
from fleetrank.device_agents.android.state.probe_text import (
    hash_serial,
    to_device_facts,
    why_refused,
)
from fleetrank.device_agents.android.state.settings import (
    RECORD,
    restore_settings,
    settings_for_measuring,
)
from fleetrank.device_agents.android.state.waits import when_back
from fleetrank.device_agents.errors import TransientError
from fleetrank.foundation.vocabulary import Origin

# The newer adb alone: what differs between versions is in test_phone.py.
pytestmark = [pytest.mark.adb, pytest.mark.parametrize("adb_server", ["wheel"], indirect=True)]

STAY_ON, HEADS_UP = "stay_on_while_plugged_in", "heads_up_notifications_enabled"
CRASH = """
import os, signal, sys
from pathlib import Path
from fleetrank.device_agents.android.adb_server import AdbServer
from fleetrank.device_agents.android.phone import Phone
from fleetrank.device_agents.android.state.settings import settings_for_measuring
with settings_for_measuring(Phone(AdbServer(Path(sys.argv[1]), int(sys.argv[2])), sys.argv[3])):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def read(phone: Phone, key: str) -> str:
    return phone.shell('settings get global "$1"', key, timeout_s=20).stdout.strip()


def has_record(bench: AdbBench) -> bool:
    return (bench.farmed.folder / RECORD[1:]).exists()


def test_a_virtual_phone_tells_all_that_is_asked(bench: AdbBench) -> None:
    facts = probe_phone(bench.phone)
    assert facts.virtual is VirtualMode.CANNED
    assert facts.serial_hash == hash_serial(bench.farmed.serial)
    assert why_refused(facts) is None
    assert None not in (facts.soc, facts.sdk, facts.build, facts.gpu, facts.memory_bytes)
    assert facts.free_bytes is not None
    assert facts.has_battery
    assert facts.has_exit_codes
    assert facts.has_taskset
    assert len(facts.cores) == sum(len(cluster.cores) for cluster in facts.clusters) > 1
    assert to_device_facts(facts, adb_version="36").origin is Origin.VIRTUAL


def test_properties_of_a_hostile_phone_are_text(bench: AdbBench) -> None:
    hostile = "a'b\"c;$(touch pwned)`id`  section x"
    properties = bench.farmed.folder / ".phone/properties"
    for name in ("ro.product.model", "ro.serialno"):
        (properties / name).write_text(hostile + "\n")
    facts = probe_phone(bench.phone)
    assert facts.model == hostile
    assert facts.serial_hash == hash_serial(hostile)
    assert not list(bench.farmed.folder.rglob("pwned"))


def test_a_phone_at_rest_is_ready(bench: AdbBench) -> None:
    seen = read_phone_conditions(bench.phone)
    assert why_unfit(seen, PhoneRules()) is None
    assert seen.battery is not None
    assert seen.boot_id is not None
    assert seen.is_screen_on is not None


def test_settings_are_set_and_put_back_and_the_unset_is_unset_again(bench: AdbBench) -> None:
    bench.phone.shell(f"settings put global {HEADS_UP} 1", timeout_s=20)
    with settings_for_measuring(bench.phone):
        assert read(bench.phone, STAY_ON) == "7"
        assert read(bench.phone, HEADS_UP) == "0"
        assert has_record(bench)
    assert read(bench.phone, STAY_ON) == "null"
    assert read(bench.phone, HEADS_UP) == "1"
    assert not has_record(bench)


def test_denied_settings_stay_and_leave_no_record(
    bench: AdbBench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.phone.shell(f"settings put global {HEADS_UP} 1", timeout_s=20)
    with settings_for_measuring(bench.phone) as is_applied:
        assert is_applied
    bench.inject(Fault.SETTINGS_DENIED)
    with settings_for_measuring(bench.phone) as is_applied:
        assert not is_applied
        assert (read(bench.phone, STAY_ON), read(bench.phone, HEADS_UP)) == ("null", "1")
    assert not has_record(bench)
    assert "Disable permission monitoring" in caplog.text
    assert "not restored" not in caplog.text


def test_a_record_of_a_crash_survives_a_phone_that_denies_to_restore_it(bench: AdbBench) -> None:
    bench.phone.shell(f"settings put global {STAY_ON} 3", timeout_s=20)
    server = bench.phone.server
    command = [sys.executable, "-c", CRASH, str(server.adb), str(server.port), bench.phone.serial]
    assert subprocess.run(command, check=False, timeout=60).returncode == -9
    bench.inject(Fault.SETTINGS_DENIED)
    with settings_for_measuring(bench.phone) as is_applied:
        assert not is_applied
    assert has_record(bench)
    bench.clear(Fault.SETTINGS_DENIED)
    restore_settings(bench.phone)
    assert read(bench.phone, STAY_ON) == "3"


def test_settings_of_a_phone_lost_for_a_moment_at_the_end_are_put_back(bench: AdbBench) -> None:
    with settings_for_measuring(bench.phone):
        bench.phone.server.disconnect(bench.phone.serial)
        bench.farm.inject(0, Fault.REBOOT, 1.0)
    assert not has_record(bench)
    assert read(bench.phone, STAY_ON) == "null"


@pytest.mark.thorough
def test_settings_of_a_phone_that_stays_away_are_put_back_later(
    bench: AdbBench, caplog: pytest.LogCaptureFixture
) -> None:
    with settings_for_measuring(bench.phone):
        bench.inject(Fault.UNAUTHORIZED)
    assert has_record(bench)
    assert "not restored yet" in caplog.text
    bench.clear(Fault.UNAUTHORIZED)
    when_back(bench.phone, restore_settings)
    assert read(bench.phone, STAY_ON) == "null"


def test_a_step_is_done_again_while_the_connection_is_interrupted(bench: AdbBench) -> None:
    seen: list[str] = []

    def step(phone: Phone) -> None:
        phone.server.disconnect(phone.serial)
        seen.append(phone.serial)
        if len(seen) < 3:
            phone.shell("true", timeout_s=5.0)

    when_back(bench.phone, step)
    assert len(seen) == 3
    with pytest.raises(TransientError):
        when_back(bench.phone, lose, limit_s=1.0)


def lose(phone: Phone) -> None:
    phone.server.disconnect(phone.serial)
    phone.shell("true", timeout_s=5.0)


def test_a_record_that_someone_changed_sets_nothing_else(bench: AdbBench) -> None:
    record: Path = bench.farmed.folder / RECORD[1:]
    record.parent.mkdir(parents=True)
    record.write_text(f"global adb_enabled 0\nglobal {HEADS_UP} $(touch pwned);x\nsecure x y\n")
    restore_settings(bench.phone)
    assert read(bench.phone, "adb_enabled") == "null"
    assert read(bench.phone, HEADS_UP) == "$(touch pwned);x"
    assert not list(bench.farmed.folder.rglob("pwned"))
