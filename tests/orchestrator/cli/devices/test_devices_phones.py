"""`devices add --adb`, `check`, `remove`, `list --found` as they are typed, on virtual phones."""

import json
import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml
from adb_bench import given_stand_ins, keep_canary
from phone_farm.farm import FarmedPhone, FarmSpec, VirtualFarm
from wording import has

from fleetrank.device_agents.android.adb_server import AdbServer
from fleetrank.device_agents.android.state.settings import FOLDER
from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.workspace.workspace import Workspace

pytestmark = pytest.mark.adb


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> Workspace:
    """One whose cache has a canary that need not be exported first."""
    assert run(["init", str(tmp_path / "w")]) == 0
    capsys.readouterr()
    monkeypatch.chdir(tmp_path / "w")
    found = Workspace.find()
    keep_canary(found.artifacts)
    return found


@contextmanager
def open_phones(server: AdbServer, folder: Path, *profiles: str) -> Iterator[list[FarmedPhone]]:
    key_file = Path.home() / ".android/adbkey.pub"
    spec = FarmSpec(folder=folder, count=len(profiles), profiles=profiles, key_file=key_file)
    with VirtualFarm(spec) as farm, ExitStack() as stack:
        for phone in farm.phones:
            stack.callback(server.disconnect, phone.address)
        yield list(farm.phones)


@pytest.fixture
def phone(server: AdbServer, tmp_path: Path) -> Iterator[FarmedPhone]:
    with open_phones(server, tmp_path / "phones", "pixel-8") as phones:
        yield phones[0]


def add(phone: FarmedPhone, *more: str) -> int:
    return run(["devices", "add", "--adb", phone.address, *tools(), *more])


def tools() -> list[str]:
    return [
        word for name, path in given_stand_ins().items() for word in ("--tool", f"{name}={path}")
    ]


def read_file(workspace: Workspace, name: str = "pixel-8") -> dict[str, dict[str, object]]:
    content: dict[str, dict[str, object]] = yaml.safe_load(
        (workspace.devices / f"{name}.yaml").read_text()
    )
    return content


def set_property(phone: FarmedPhone, name: str, value: str) -> None:
    (phone.folder / ".phone/properties" / name).write_text(value + "\n")


def changes(capsys, name: str = "pixel-8") -> dict[str, dict[str, object]]:
    capsys.readouterr()
    assert run(["devices", "check", name, "--json"]) == 0
    return {row["fact"]: row for row in json.loads(capsys.readouterr().out)["changes"]}


def test_a_phone_is_registered_with_what_it_is_and_how_it_repeats_and_removing_cleans_it(
    phone: FarmedPhone, workspace: Workspace, capsys
) -> None:
    assert add(phone, "--label", "rack=2") == 0
    text = (workspace.devices / "pixel-8.yaml").read_text()
    content = read_file(workspace)
    assert content["kind"] == "android"
    assert content["labels"] == {"rack": "2"}
    assert content["options"]["serial"] == phone.address
    assert phone.serial not in text, "only the hash of its own serial number"
    registration = content["registration"]
    assert len(registration["canary_latency_ns"]) == 2
    assert content["options"]["virtual"] == "canned"
    assert registration["facts"]["delegates"] == "gpu 100%, nnapi 83%"
    assert [len(cluster) for cluster in registration["clusters"]] == [1, 4, 4]
    assert registration["facts"]["soc"] == "Google Tensor G3"
    assert not (phone.folder / FOLDER[1:] / "run").exists()
    assert (phone.folder / FOLDER[1:]).exists()
    capsys.readouterr()
    assert run(["devices", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)[-1]
    assert (listed["name"], listed["model"], listed["state"]) == ("pixel-8", "Pixel 8", "device")
    assert run(["devices", "remove", "pixel-8"]) == 0
    assert not (phone.folder / FOLDER[1:]).exists()
    assert not list(workspace.devices.glob("*.yaml"))


@pytest.mark.thorough
def test_the_same_phone_again_updates_its_file_and_keeps_what_a_person_wrote(
    phone: FarmedPhone, workspace: Workspace
) -> None:
    assert add(phone, "--name", "mine", "--label", "rack=2") == 0
    path = workspace.devices / "mine.yaml"
    path.write_text(path.read_text().replace("options:\n", "options:\n  max_wait_s: 900.0\n"))
    set_property(phone, "ro.build.version.incremental", "newer")
    assert add(phone, "--label", "owner=ann") == 0
    content = read_file(workspace, "mine")
    assert content["options"]["max_wait_s"] == 900.0
    assert content["labels"] == {"rack": "2", "owner": "ann"}
    assert content["registration"]["facts"]["build"] == "newer"
    assert [file.name for file in workspace.devices.glob("*.yaml")] == ["mine.yaml"]
    assert add(phone, "--name", "yours") == 0
    assert [file.name for file in workspace.devices.glob("*.yaml")] == ["yours.yaml"]


def files_of(workspace: Workspace) -> set[str]:
    return {file.stem for file in workspace.devices.glob("*.yaml")}


def android_id(phone: FarmedPhone) -> Path:
    return phone.folder / ".phone/settings/secure/android_id"


@pytest.mark.thorough
def test_the_file_of_a_twin_is_not_removed_for_another_name(
    server: AdbServer, workspace: Workspace, tmp_path: Path, capsys
) -> None:
    with open_phones(server, tmp_path / "phones", "pixel-8", "pixel-8") as phones:
        for phone in phones:
            set_property(phone, "ro.serialno", "0123456789ABCDEF")
            android_id(phone).unlink()  # nothing tells them apart
        assert add(phones[0], "--name", "first") == 0
        capsys.readouterr()
        assert add(phones[1], "--name", "second") == 2
        assert "remove first" in capsys.readouterr().err
        assert files_of(workspace) == {"first"}


@pytest.mark.thorough
def test_the_printed_command_registers_a_phone_of_a_server_that_only_a_variable_names(
    server: AdbServer, phone: FarmedPhone, workspace: Workspace, capsys, monkeypatch
) -> None:
    server.connect(phone.address)
    assert run(["devices", "list", "--found", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    monkeypatch.delenv("ANDROID_ADB_SERVER_PORT")
    assert run([*shlex.split(row["what_to_do"])[1:], *tools(), "--name", "mine"]) == 0
    assert read_file(workspace, "mine")["options"]["adb_server"] == f"127.0.0.1:{server.port}"


def test_a_phone_with_too_old_a_system_is_refused_with_the_reason(
    server: AdbServer, workspace: Workspace, tmp_path: Path, capsys
) -> None:
    with open_phones(server, tmp_path / "phones", "moto-e4", "nexus-5") as phones:
        for phone in phones:
            assert add(phone) == 4
            told = capsys.readouterr().err
            assert "too old" in told
            assert "use another phone" in told
    assert not list(workspace.devices.glob("*.yaml"))


def test_a_phone_whose_instructions_no_program_has_is_refused(
    phone: FarmedPhone, workspace: Workspace, capsys
) -> None:
    set_property(phone, "ro.product.cpu.abilist", "mips")
    assert add(phone) == 4
    assert "mips" in capsys.readouterr().err


@pytest.mark.thorough
def test_a_phone_that_is_away_is_removed_with_a_note(
    server: AdbServer, workspace: Workspace, tmp_path: Path, capsys
) -> None:
    with open_phones(server, tmp_path / "phones", "pixel-8") as phones:
        assert add(phones[0]) == 0
    capsys.readouterr()
    assert run(["devices", "remove", "pixel-8"]) == 0
    told = capsys.readouterr().err
    assert "not deleted" in told
    assert f"rm -r {FOLDER}" in told
    assert not list(workspace.devices.glob("*.yaml"))


@pytest.mark.thorough
def test_removing_does_not_clean_another_phone_at_the_address(
    phone: FarmedPhone, workspace: Workspace, capsys
) -> None:
    assert add(phone) == 0
    for name in ("ro.serialno", "ro.boot.serialno"):
        set_property(phone, name, "OTHER")
    assert run(["devices", "remove", "pixel-8"]) == 0
    assert (phone.folder / FOLDER[1:]).exists()
    assert "not the registered phone" in capsys.readouterr().err


def test_a_phone_is_proven_by_plain_adb_shell_until_it_is_registered_again(
    phone: FarmedPhone, workspace: Workspace, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetrank.device_agents.proving.N_PAIRS", 1)
    assert add(phone, "--option", "settle_s=0") == 0
    capsys.readouterr()
    code = run(["devices", "check", "pixel-8", "--proof"])
    said = capsys.readouterr().out
    assert code == (3 if "finding" in said else 0)
    assert has(said, "the range of 1 pair", "placement 65 of 65", "battery read; temperature read")
    stored = read_file(workspace)["proof"]
    assert "not compared" in stored["outputs"]
    # Canned latencies of two command lines differ by some per cent.
    assert stored["ratio"] == pytest.approx(1.0, abs=0.15)
    assert add(phone) == 0
    assert "proof" not in read_file(workspace)
