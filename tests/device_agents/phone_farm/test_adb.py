"""What adb sees of a virtual phone; what its faults do is seen in `tests/device_agents/android`."""

from pathlib import Path

import pytest
from adb_bench import OnePhone, adb, private_server
from phone_farm.farm import FarmSpec, VirtualFarm
from phone_farm.faults import Fault

pytestmark = pytest.mark.adb

TMP = "/data/local/tmp"


def test_a_transfer_reaches_nothing_outside_the_phone(phone: OnePhone, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("host")
    assert phone.run("pull", str(secret), str(tmp_path / "got")).returncode != 0
    assert phone.run("pull", f"../../..{secret}", str(tmp_path / "got")).returncode != 0
    assert not (tmp_path / "got").exists()
    phone.run("push", str(secret), f"/data/../../../../{tmp_path}/escaped")
    assert not (tmp_path / "escaped").exists()


@pytest.mark.thorough
def test_another_users_key_opens_nothing(phone: OnePhone, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with private_server(phone.bench.phone.server.adb, tmp_path / "other") as other:
        adb(other, "connect", phone.address)
        assert b"unauthorized" in adb(other, "devices").stdout
        assert adb(other, "-s", phone.address, "shell", "echo in").stdout == b""
    assert phone.shell("echo in") == "in\n"


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
