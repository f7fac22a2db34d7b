from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from phone_farm.farm import FarmSpec, VirtualFarm
from phone_farm.paths import PhonePaths

from fleetrank.device_agents.errors import PermanentError

ROOT = Path("/farm/VPHONE1")


@pytest.fixture
def paths(tmp_path: Path) -> PhonePaths:
    (tmp_path / "phone/data").mkdir(parents=True)
    return PhonePaths(tmp_path / "phone")


@pytest.mark.adb
def test_phones_listen_on_this_computer_only(tmp_path: Path) -> None:
    with VirtualFarm(FarmSpec(folder=tmp_path)) as farm:
        assert farm.phones[0].address.startswith("127.0.0.1:")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("ls /data", "ls ROOT/data"),
        ("ls '/data/local/tmp'", "ls 'ROOT/data/local/tmp'"),
        ("tool --graph=/data/m.tflite", "tool --graph=ROOT/data/m.tflite"),
        ("cat /proc/cpuinfo;cat</sys/x", "cat ROOT/proc/cpuinfo;cat<ROOT/sys/x"),
        ("echo $((8/data))", "echo $((8/data))"),
        ('cat "/proc/$pid/cwd" /proc', 'cat "/proc/$pid/cwd" ROOT/proc'),
        ("ls $d/data ./data /database /bin/sh", "ls $d/data ./data /database /bin/sh"),
        ("echo > /dev/null", "echo > /dev/null"),
    ],
)
def test_the_phones_folders_are_found_in_a_command(
    paths: PhonePaths, command: str, expected: str
) -> None:
    assert paths.to_host(command) == expected.replace("ROOT", str(paths.root))


def test_a_folder_that_a_shell_could_read_as_code_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="cannot hold"):
        PhonePaths(tmp_path / "a b;$(x)")


@given(path=st.text())
def test_no_path_of_a_transfer_leaves_the_phone(path: str) -> None:
    paths = PhonePaths(ROOT)
    for hostile in (path, f"../{path}", f"/../../{path}", f"/data/../../../{path}"):
        found = paths.file(hostile)
        assert found is None or found.is_relative_to(ROOT)


def test_a_link_out_of_the_phone_is_not_followed(paths: PhonePaths) -> None:
    (paths.root / "data/out").symlink_to("/etc")
    assert paths.file("/data/out") is None
    assert paths.file("/data/out/passwd") is None
    assert paths.file("/data/in") == paths.root / "data/in"
