from fleetrank.device_agents.android.adb.adb_text import MdnsService, parse_devices
from fleetrank.orchestrator.cli.devices.devices_discover import rows_of
from fleetrank.orchestrator.workspace.device_registry import DeviceFile

SEEN = parse_devices(
    "A1   device usb:1-1 model:Pixel_6 transport_id:1\n"
    "B 2  device usb:1-2 model:Pixel_7 transport_id:2\n"
    "10.0.0.2:5555 unauthorized transport_id:3\n"
)
SERVICES = (
    MdnsService(name="adb-x", kind="_adb-tls-connect._tcp", address="10.0.0.2:5555"),
    MdnsService(name="adb-y", kind="_adb-tls-connect._tcp", address="10.0.0.3:5555"),
    MdnsService(name="adb-z", kind="_adb-tls-pairing._tcp", address="10.0.0.4:4444"),
)
REGISTERED = DeviceFile(name="mine", kind="simulated", options={"serial": "A1"})


def test_each_phone_is_told_what_to_do_about() -> None:
    rows = rows_of(SEEN, SERVICES, [REGISTERED])
    told = [(row["serial"], row["state"], row["registered_as"]) for row in rows]
    assert told == [
        ("A1", "device", "mine"),
        ("B 2", "device", None),
        ("10.0.0.2:5555", "unauthorized", None),
        ("10.0.0.3:5555", "announced", None),
        ("10.0.0.4:4444", "announced", None),
    ]
    advice = [str(row["what_to_do"]) for row in rows]
    assert advice[0] == "nothing; registered as mine"
    assert advice[1] == "fleetrank devices add --adb 'B 2'"
    assert "accept" in advice[2]
    assert advice[3:] == ["adb connect 10.0.0.3:5555", "adb pair 10.0.0.4:4444"]
