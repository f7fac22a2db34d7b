"""Against a folder and a real `sh`: the scripts run as they would on a phone."""

import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fleetrank.device_agents.android.execution.program_files import ProgramFile, read_program
from fleetrank.device_agents.android.execution.storage import PhoneStorage
from fleetrank.device_agents.android.phone_streams import ShellResult
from fleetrank.device_agents.android.state.probe_text import free_bytes
from fleetrank.device_agents.errors import PermanentError, StorageFullError, TransientError

pytestmark = pytest.mark.slow

GNU = """Filesystem     1K-blocks     Used Available Use% Mounted on
/dev/block/dm-5 113378264 37123456  76123648  33% /data
"""
WRAPPED = """Filesystem           1K-blocks      Used Available Use% Mounted on
/dev/block/platform/soc/userdata
                     113378264  37123456  76123648  33% /data
"""


@dataclass
class FolderPhone:
    pushed: list[str] = field(default_factory=list)
    df_text: str | None = None

    def shell(self, script: str, *arguments: str, timeout_s: float) -> ShellResult:
        done = subprocess.run(
            ["sh", "-c", script, "fleetrank", *arguments],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        is_df = "df -k" in script and self.df_text is not None and done.returncode == 0
        stdout = str(self.df_text) if is_df else done.stdout
        return ShellResult(exit_code=done.returncode, stdout=stdout, stderr=done.stderr)

    def push(self, local: Path, remote: str, timeout_s: float, *, mode: int = 0o644) -> None:
        assert timeout_s > 0
        shutil.copyfile(local, remote)
        Path(remote).chmod(mode)
        self.pushed.append(remote)


@pytest.fixture
def phone() -> FolderPhone:
    return FolderPhone(df_text=GNU)


@pytest.fixture
def tool(tmp_path) -> ProgramFile:
    path = tmp_path / "program"
    path.write_bytes(b"#!/bin/sh\necho measured\n")
    return ProgramFile(name="benchmark_model", path=path, sha256=sha256(path))


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def cache(phone: FolderPhone, tmp_path: Path, name: str = "phone") -> PhoneStorage:
    return PhoneStorage(phone, str(tmp_path / name))


def test_a_tool_is_pushed_once_and_can_be_run(phone, tool, tmp_path) -> None:
    kept = cache(phone, tmp_path)
    remote = kept.place_program(tool)
    assert remote == f"{tmp_path}/phone/tools/{tool.sha256}/benchmark_model"
    assert subprocess.check_output([remote], text=True) == "measured\n"
    assert kept.place_program(tool) == remote
    assert phone.pushed == [remote]


def test_what_was_changed_on_the_phone_is_pushed_again(phone, tool, tmp_path) -> None:
    kept = cache(phone, tmp_path)
    remote = Path(kept.place_program(tool))
    remote.write_text("something else")
    kept.place_program(tool)
    assert sha256(remote) == tool.sha256


def test_an_artifact_lies_under_its_sha256_with_its_suffix(phone, tool, tmp_path) -> None:
    remote = cache(phone, tmp_path).place_artifact(tool.path, tool.sha256, ".tflite")
    assert remote == f"{tmp_path}/phone/artifacts/{tool.sha256}.tflite"
    assert not os.access(remote, os.X_OK)


def test_an_artifact_that_changed_on_the_host_is_refused(phone, tool, tmp_path) -> None:
    with pytest.raises(PermanentError, match="has the sha256"):
        cache(phone, tmp_path).place_artifact(tool.path, "0" * 64, ".tflite")


def test_free_space_is_asked_for_before_anything_is_pushed(phone, tool, tmp_path) -> None:
    phone.df_text = GNU.replace("76123648", "102400")
    with pytest.raises(StorageFullError, match="104857600 bytes free"):
        cache(phone, tmp_path).place_program(tool)
    assert phone.pushed == []


def test_an_answer_of_df_that_nobody_understands_does_not_stop_it(phone, tool, tmp_path) -> None:
    phone.df_text = "/data: 25G total, 3G used"
    cache(phone, tmp_path).place_program(tool)
    assert len(phone.pushed) == 1


def test_no_name_is_interpreted(phone, tool, tmp_path) -> None:
    name = "a b; touch hacked $(touch hacked)\n'\""
    kept = cache(phone, tmp_path, name)
    kept.place_program(tool)
    assert (tmp_path / name / "tools").is_dir()
    kept.clear()
    assert not (tmp_path / name).exists()
    assert not list(tmp_path.rglob("hacked"))
    assert not Path("hacked").exists()


def test_clearing_takes_everything_and_may_be_repeated(phone, tool, tmp_path) -> None:
    kept = cache(phone, tmp_path)
    kept.place_program(tool)
    kept.clear()
    kept.clear()
    assert not (tmp_path / "phone").exists()


def test_a_folder_that_cannot_be_made_is_said_so(phone, tool, tmp_path) -> None:
    (tmp_path / "phone").write_text("a file")
    with pytest.raises(TransientError, match="did not make"):
        cache(phone, tmp_path).place_program(tool)


@pytest.mark.parametrize("text", [GNU, WRAPPED])
def test_df_of_every_known_form(text) -> None:
    assert free_bytes(text) == 76123648 * 1024


def test_df_of_this_host_is_understood(tmp_path) -> None:
    text = subprocess.check_output(["df", "-k", str(tmp_path)], text=True)
    free = shutil.disk_usage(tmp_path).free
    assert free_bytes(text) == pytest.approx(free, rel=0.05)


@pytest.fixture
def folder(tmp_path) -> ProgramFile:
    made = tmp_path / "qnn"
    made.mkdir()
    (made / "benchmark_model").write_bytes(b"program")
    (made / "libQnn.so").write_bytes(b"library")
    return read_program("benchmark_model", made)


def test_a_folder_is_pushed_once_and_only_what_is_missing(phone, folder, tmp_path) -> None:
    kept = cache(phone, tmp_path)
    remote = Path(kept.place_program(folder))
    assert remote.parent.name == folder.sha256
    assert (remote.parent / "libQnn.so").read_bytes() == b"library"
    kept.place_program(folder)
    assert len(phone.pushed) == 2
    (remote.parent / "libQnn.so").write_bytes(b"changed on the phone")
    kept.place_program(folder)
    assert phone.pushed[2:] == [str(remote.parent / "libQnn.so")]


def test_an_unknown_library_beside_the_program_is_refused_and_left_there(
    phone, folder, tmp_path
) -> None:
    kept = cache(phone, tmp_path)
    planted = Path(kept.place_program(folder)).with_name("libc++_shared.so")
    planted.write_bytes(b"planted")
    with pytest.raises(PermanentError, match=r"libc\+\+_shared\.so") as caught:
        kept.place_program(folder)
    assert "rm -r" in caught.value.remedy
    assert planted.read_bytes() == b"planted"
