from fleetrank.device_agents.contract.kind import SeenDevice
from fleetrank.device_agents.registry import load_kind
from fleetrank.orchestrator.cli.devices_command import rows_of
from fleetrank.orchestrator.workspace.device_registry import DeviceFile

REGISTERED = DeviceFile(name="mine", kind="android", options={"serial": "A1"})


def test_each_device_has_its_next_step() -> None:
    seen = [
        SeenDevice(address=address, state="s", transport="usb", model="Pixel 6", remedy=remedy)
        for address, remedy in (("A1", None), ("B 2", None), ("C3", "unlock it"))
    ]
    rows = rows_of(load_kind("android"), seen, [REGISTERED])
    assert [row["registered_as"] for row in rows] == ["mine", None, None]
    assert [row["what_to_do"] for row in rows] == [
        "nothing; registered as mine",
        "fleetrank devices add --adb 'B 2'",
        "unlock it",
    ]
    assert list(rows[0]) == [
        "serial", "state", "transport", "model", "registered_as", "what_to_do",
    ]  # fmt: skip
