from fleetrank.device_agents.android.adb_text import MdnsService, parse_devices
from fleetrank.device_agents.android.discovery import phones_of

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


def test_each_phone_has_its_state_and_what_it_needs() -> None:
    phones = phones_of(SEEN, SERVICES)
    assert [(phone.address, phone.state) for phone in phones] == [
        ("A1", "device"),
        ("B 2", "device"),
        ("10.0.0.2:5555", "unauthorized"),
        ("10.0.0.3:5555", "announced"),
        ("10.0.0.4:4444", "announced"),
    ]
    remedies = [phone.remedy for phone in phones]
    assert remedies[:2] == [None, None]
    assert "accept" in (remedies[2] or "")
    assert remedies[3:] == ["adb connect 10.0.0.3:5555", "adb pair 10.0.0.4:4444"]
