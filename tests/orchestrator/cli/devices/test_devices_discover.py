import pytest
from wording import has

from fleetrank.device_agents.contract.kind import SeenDevice
from fleetrank.device_agents.registry import load_kind
from fleetrank.orchestrator.cli.devices_command import rows_of
from fleetrank.orchestrator.workspace.device_registry import DeviceFile

REGISTERED = [
    DeviceFile(name="mine", kind="android", options={"serial": "A1"}),
    DeviceFile(name="far", kind="android", options={"serial": "A1", "adb_server": "lab:5037"}),
]


def test_each_device_has_its_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ADB_SERVER_SOCKET", "ANDROID_ADB_SERVER_ADDRESS", "ANDROID_ADB_SERVER_PORT"):
        monkeypatch.delenv(name, raising=False)
    lab = {"adb_server": "lab:5037"}
    seen = [
        SeenDevice(
            address=address, state="s", transport="usb", model="M", remedy=remedy, options=options
        )
        for address, remedy, options in (
            ("A1", None, {}),
            ("B 2", None, {}),
            ("C3", "unlock it", {}),
            ("A1", None, lab),
            ("D4", None, lab),
        )
    ]
    kind = load_kind("android")
    rows = rows_of(kind, kind.discoverer(), seen, REGISTERED)
    assert [row["registered_as"] for row in rows] == ["mine", None, None, "far", None]
    assert [row["what_to_do"] for row in rows] == [
        "nothing; registered as mine",
        "fleetrank devices add --adb 'B 2'",
        "unlock it",
        "nothing; registered as far",
        "fleetrank devices add --adb D4 --option adb_server=lab:5037",
    ]
    assert list(rows[0]) == [
        "serial", "state", "transport", "model", "registered_as", "what_to_do",
    ]  # fmt: skip
    (moved,) = rows_of(kind, kind.discoverer(), seen[1:2], REGISTERED)
    assert has(str(moved["what_to_do"]), "add --adb 'B 2'", "# mine, far keeps its name")
