import pytest

from fleetrank.device_agents.android.adb_text import (
    REMEDIES,
    DeviceState,
    Transport,
    error_of_refusal,
    is_connected,
    is_network_serial,
    parse_devices,
    parse_mdns_services,
)
from fleetrank.device_agents.errors import TransientError, UnusableDeviceError

LISTING = """List of devices attached
0A041FDD4001V7         device usb:1-1 product:oriole model:Pixel_6 device:oriole transport_id:1
127.0.0.1:41000        offline transport_id:12
emulator-5554          device product:sdk model:sdk_gphone device:generic transport_id:3
R58M30ABCDE            unauthorized 1-3.2 transport_id:4
????????????           no permissions (user in plugdev group; are your udev rules wrong?); see [http://developer.android.com/tools/device.html] usb:1-4 transport_id:5
adb-1A-xY._adb-tls-connect._tcp device product:x model:y device:z transport_id:6
my device $(id)        device usb:2-1 model:X
?1	no permissions; see [http://developer.android.com/tools/device.html]
?2no permissions (missing udev rules? user is in the plugdev group) usb:1-4
3A021JEHN02756         detached usb:1-2 transport_id:9

"""  # noqa: E501


def test_each_kind_of_line_is_read() -> None:
    seen = parse_devices(LISTING)
    assert [(one.address, one.state, one.transport) for one in seen] == [
        ("0A041FDD4001V7", DeviceState.DEVICE, Transport.USB),
        ("127.0.0.1:41000", DeviceState.OFFLINE, Transport.TCP),
        ("emulator-5554", DeviceState.DEVICE, Transport.EMULATOR),
        ("R58M30ABCDE", DeviceState.UNAUTHORIZED, Transport.USB),
        ("????????????", DeviceState.NO_PERMISSIONS, Transport.USB),
        ("adb-1A-xY._adb-tls-connect._tcp", DeviceState.DEVICE, Transport.MDNS),
        ("my device $(id)", DeviceState.DEVICE, Transport.USB),
        ("?1", DeviceState.NO_PERMISSIONS, Transport.USB),
        ("?2", DeviceState.NO_PERMISSIONS, Transport.USB),
        ("3A021JEHN02756", DeviceState.DETACHED, Transport.USB),
    ]
    assert (seen[0].model, seen[0].remedy, seen[1].model) == ("Pixel_6", None, None)
    assert all(one.remedy for one in seen if one.state != DeviceState.DEVICE)


def test_services_on_the_network_are_read_with_and_without_heading() -> None:
    text = (
        "List of discovered mdns services\n"
        "adb-1A-xY\t_adb-tls-connect._tcp\t192.168.1.7:37123\n"
        "adb-1A-xY   _adb._tcp.   10.0.0.2:5555\n"
    )
    assert [(one.name, one.kind, one.address) for one in parse_mdns_services(text)] == [
        ("adb-1A-xY", "_adb-tls-connect._tcp", "192.168.1.7:37123"),
        ("adb-1A-xY", "_adb._tcp", "10.0.0.2:5555"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("connected to 127.0.0.1:5", True),
        ("already connected to 127.0.0.1:5", True),
        ("failed to connect to '127.0.0.1:5': Connection refused", False),
        ("failed to connect to 127.0.0.1:5", False),
        ("unable to connect to connected to 127.0.0.1:5", False),
        ("", False),
    ],
)
def test_connecting_is_judged_by_the_text(text: str, expected: bool) -> None:
    assert is_connected(text) is expected


@pytest.mark.parametrize(
    ("text", "error", "state"),
    [
        ("device unauthorized.\nThis adb server's $ADB_VENDOR_KEYS is not set",
         UnusableDeviceError, DeviceState.UNAUTHORIZED),
        ("failed to authenticate to S1", UnusableDeviceError, DeviceState.UNAUTHORIZED),
        ("device still authorizing", TransientError, DeviceState.AUTHORIZING),
        ("device offline", TransientError, DeviceState.OFFLINE),
        ("device 'S1' not found", TransientError, DeviceState.ABSENT),
        ("insufficient permissions for device: udev",
         UnusableDeviceError, DeviceState.NO_PERMISSIONS),
        ("Insufficient permissions for device: user in plugdev group; are your udev rules wrong?",
         UnusableDeviceError, DeviceState.NO_PERMISSIONS),
        ("more than one device with the same serial", UnusableDeviceError, DeviceState.SAME_SERIAL),
        ("more than one device", UnusableDeviceError, DeviceState.SAME_SERIAL),
        ("closed", TransientError, DeviceState.UNKNOWN),
    ],
)  # fmt: skip
def test_each_refusal_has_its_class_and_its_remedy(
    text: str, error: type[Exception], state: DeviceState
) -> None:
    found = error_of_refusal("S1", text)
    assert type(found) is error
    assert found.remedy == REMEDIES[state]


def test_a_serial_that_reads_like_a_refusal_does_not_change_its_class() -> None:
    serial = "device unauthorized"
    found = error_of_refusal(serial, f"device '{serial}' not found")
    assert type(found) is TransientError


@pytest.mark.parametrize(
    ("serial", "is_network"),
    [
        ("127.0.0.1:5555", True),
        ("adb-1A-xY._adb-tls-connect._tcp", True),
        ("adb-1A-xY._adb-tls-connect._tcp.", True),
        ("adb-1A-xY._adb-tls-pairing._tcp", False),
        ("R58M30ABCDE", False),
        ("emulator-5554", False),
    ],
)
def test_a_phone_is_reached_again_by_its_address_or_its_mdns_name(
    serial: str, is_network: bool
) -> None:
    assert is_network_serial(serial) is is_network
