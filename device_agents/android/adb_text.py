"""Turns adb's texts into values: devices, network services, answers to `connect`, refusals.

Source: formats of adb 29.0.6 and 36.0.0 (`client/commandline.cpp`, `transport.cpp` and
    `adb_mdns.cpp` of packages/modules/adb), seen running.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from device_agents.errors import AgentError, TransientError, UnusableDeviceError


class DeviceState(StrEnum):
    """What adb says of a device."""

    DEVICE = "device"
    OFFLINE = "offline"
    UNAUTHORIZED = "unauthorized"
    AUTHORIZING = "authorizing"
    CONNECTING = "connecting"
    NO_PERMISSIONS = "no permissions"
    BOOTLOADER = "bootloader"
    RECOVERY = "recovery"
    SIDELOAD = "sideload"
    RESCUE = "rescue"
    HOST = "host"
    ABSENT = "absent"
    UNKNOWN = "unknown"


class Transport(StrEnum):
    """The way adb reaches a device."""

    USB = "usb"
    TCP = "tcp"
    MDNS = "mdns"
    EMULATOR = "emulator"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenDevice:
    """One line of `adb devices -l`; nothing of it was checked, the phone itself says it.

    Attributes:
        model: as adb prints it, with `_` for everything that is neither letter nor digit.
        transport_id: adb's number of the connection; `None` from servers before 1.0.41.
    """

    serial: str
    state: DeviceState
    transport: Transport
    model: str | None = None
    product: str | None = None
    transport_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MdnsService:
    """A phone that announces itself on the network.

    Attributes:
        kind: `_adb._tcp`, `_adb-tls-connect._tcp`, or `_adb-tls-pairing._tcp` while its screen
            shows a pairing code.
    """

    name: str
    kind: str
    address: str


REMEDIES: dict[DeviceState, str] = {
    DeviceState.DEVICE: "nothing; `fleetrank devices add --adb SERIAL` registers it",
    DeviceState.OFFLINE: "unplug it and plug it in again, or `adb reconnect`; restart the phone "
    "when that does not help",
    DeviceState.UNAUTHORIZED: "unlock the phone and accept this computer's key, best with 'Always "
    "allow'; if it does not ask, revoke USB debugging authorisations in its developer options",
    DeviceState.AUTHORIZING: "unlock the phone and accept this computer's key, then try again",
    DeviceState.CONNECTING: "wait a few seconds and try again",
    DeviceState.NO_PERMISSIONS: "install udev rules for phones (Debian: android-sdk-platform-tools-"
    "common), join the group plugdev, log in again and replug the cable",
    DeviceState.BOOTLOADER: "start Android on the phone",
    DeviceState.RECOVERY: "restart the phone into Android",
    DeviceState.SIDELOAD: "restart the phone into Android",
    DeviceState.RESCUE: "restart the phone into Android",
    DeviceState.HOST: "this is a computer, not a phone; leave it out",
    DeviceState.ABSENT: "plug the phone in, or check its address, switch on USB debugging in its "
    "developer options, and look with `fleetrank devices discover`",
    DeviceState.UNKNOWN: "restart the phone and look with `fleetrank devices discover`",
}
"""What a person does about each state."""

_STATES = "|".join(
    state.value
    for state in DeviceState
    if state not in (DeviceState.ABSENT, DeviceState.UNKNOWN, DeviceState.NO_PERMISSIONS)
)
_DEVICE = re.compile(
    rf"(?P<serial>.*?\S)\s+(?P<state>(?:{_STATES}|unknown)|no permissions.*?)"
    r"(?P<facts>(?:\s+(?:[\w-]+:\S*|\d+-[\d.]+))*)\s*"
)
"""The first word that is a state and has only facts behind it: serials may hold blanks."""
_FACT = re.compile(r"([\w-]+):(\S*)")
_BARE_USB = re.compile(r"(?:^|\s)(?:usb:)?\d+-[\d.]+(?:\s|$)")
_SERVICE = re.compile(r"(?P<name>\S.*?)\s+(?P<kind>_adb[\w-]*\._tcp)\.?\s+(?P<address>\S+)\s*")
_ADDRESS = re.compile(r".+:\d{1,5}", re.DOTALL)
_CONNECTED = re.compile(r"\s*(?:already )?connected to ")

_REFUSALS: tuple[tuple[str, DeviceState], ...] = (
    ("device unauthorized", DeviceState.UNAUTHORIZED),
    ("failed to authenticate", DeviceState.UNAUTHORIZED),
    ("still authorizing", DeviceState.AUTHORIZING),
    ("still connecting", DeviceState.CONNECTING),
    ("insufficient permissions", DeviceState.NO_PERMISSIONS),
    ("no permissions", DeviceState.NO_PERMISSIONS),
    ("offline", DeviceState.OFFLINE),
    ("not found", DeviceState.ABSENT),
    ("no devices", DeviceState.ABSENT),
    ("failed to connect", DeviceState.ABSENT),
    ("unable to connect", DeviceState.ABSENT),
)
"""The first part that adb's refusal contains says the state; a serial may contain any of them,
so it is cut out of the text before."""
_PERMANENT = (DeviceState.UNAUTHORIZED, DeviceState.NO_PERMISSIONS)
MAX_TEXT = 500
"""Characters of a foreign text that a message repeats."""


def parse_devices(text: str) -> tuple[SeenDevice, ...]:
    """Reads `adb devices -l`, with or without its heading; other lines are passed over."""
    matches = (_DEVICE.fullmatch(line) for line in text.split("\n"))
    return tuple(_seen(match) for match in matches if match is not None)


def parse_mdns_services(text: str) -> tuple[MdnsService, ...]:
    """Reads `adb mdns services`, with or without its heading."""
    matches = (_SERVICE.fullmatch(line) for line in text.split("\n"))
    return tuple(
        MdnsService(name=match["name"], kind=match["kind"], address=match["address"])
        for match in matches
        if match is not None
    )


def is_connected(text: str) -> bool:
    """Whether adb's answer to `connect` means that it is; the exit code is 0 either way."""
    return _CONNECTED.match(text) is not None


def is_network_serial(serial: str) -> bool:
    """Whether a serial is an address that `adb connect` takes."""
    return _ADDRESS.fullmatch(serial) is not None


def error_of_refusal(serial: str, text: str) -> AgentError:
    """The error that adb's refusal of a request stands for, its remedy included."""
    told = text.replace(serial, "") if serial else text
    state = next((state for part, state in _REFUSALS if part in told), DeviceState.UNKNOWN)
    message = f"adb refuses phone {serial!r}: {shown(text)}"
    error = UnusableDeviceError if state in _PERMANENT else TransientError
    return error(message, REMEDIES[state])


def shown(text: str) -> str:
    """A foreign text for a message: one line, no control characters, not too long."""
    line = " ".join(text.split())[:MAX_TEXT]
    return "".join(letter if letter.isprintable() else "?" for letter in line)


def _seen(match: re.Match[str]) -> SeenDevice:
    facts = dict(_FACT.findall(match["facts"]))
    number = facts.get("transport_id", "")
    is_usb = "usb" in facts or _BARE_USB.search(match["facts"]) is not None
    return SeenDevice(
        serial=match["serial"],
        state=_state(match["state"]),
        transport=_transport(match["serial"], is_usb),
        model=facts.get("model") or None,
        product=facts.get("product") or None,
        transport_id=int(number) if re.fullmatch(r"\d{1,18}", number, re.ASCII) else None,
    )


def _state(text: str) -> DeviceState:
    if text.startswith(DeviceState.NO_PERMISSIONS):
        return DeviceState.NO_PERMISSIONS
    return DeviceState(text)


def _transport(serial: str, is_usb: bool) -> Transport:
    if is_usb:
        return Transport.USB
    if "._adb" in serial and "._tcp" in serial:
        return Transport.MDNS
    if re.fullmatch(r"emulator-\d+", serial, re.ASCII):
        return Transport.EMULATOR
    return Transport.TCP if is_network_serial(serial) else Transport.USB
