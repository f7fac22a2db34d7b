"""Turns adb's texts into values: devices, network services, answers to `connect`, refusals.

Source: formats of adb 29.0.6 and 36.0.0 (`client/commandline.cpp`, `transport.cpp` and
    `adb_mdns.cpp` of packages/modules/adb), seen running.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from fleetrank.device_agents.device_output.device_text import MAX_DIGITS, lines_of
from fleetrank.device_agents.errors import AgentError, TransientError, UnusableDeviceError


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

MIN_LINE_CHARACTERS = len("a host")
"""Of a line that names a device: no time is spent on thousands of shorter ones."""
MAX_FACTS = 16
"""Behind the state of a device; adb 36 prints six."""
_USB_PORT = re.compile(r"(?:usb:)?+\d++-[\d.]++")
_FACT = re.compile(r"[\w-]++:\S*+|\d++-[\d.]++")
_KIND = re.compile(r"(_adb[\w-]*+\._tcp)\.?+")
_PORT = re.compile(r"\d{1,5}")
_CONNECTED = ("connected to ", "already connected to ")

_STATES = set(DeviceState) - {DeviceState.ABSENT, DeviceState.NO_PERMISSIONS}
"""States of one word that adb prints."""

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
    seen = (_seen(line) for line in lines_of(text) if len(line) >= MIN_LINE_CHARACTERS)
    return tuple(device for device in seen if device is not None)


def parse_mdns_services(text: str) -> tuple[MdnsService, ...]:
    """Reads `adb mdns services`, with or without its heading."""
    services = (_service(line) for line in lines_of(text) if "_adb" in line)
    return tuple(service for service in services if service is not None)


def is_connected(text: str) -> bool:
    """Whether adb's answer to `connect` means that it is; the exit code is 0 either way."""
    return text.lstrip().startswith(_CONNECTED)


def is_network_serial(serial: str) -> bool:
    """Whether a serial is an address that `adb connect` takes."""
    host, _, port = serial.rpartition(":")
    return bool(host) and _PORT.fullmatch(port) is not None


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


def _seen(line: str) -> SeenDevice | None:
    """Serial, state, facts: serials may hold blanks, and so does one state."""
    serial, state, facts = _parts(line)
    if state is None or not serial.strip():
        return None
    named = {name: value for name, colon, value in (it.partition(":") for it in facts) if colon}
    number = named.get("transport_id", "")
    is_number = number.isascii() and number.isdigit() and len(number) <= MAX_DIGITS
    return SeenDevice(
        serial=serial,
        state=state,
        transport=_transport(serial, "usb" in named or any(map(_USB_PORT.fullmatch, facts))),
        model=named.get("model") or None,
        product=named.get("product") or None,
        transport_id=int(number) if is_number else None,
    )


def _parts(line: str) -> tuple[str, DeviceState | None, list[str]]:
    """Serial, state and facts; the state is the last word before the facts, or `no permissions`."""
    serial, found, rest = line.partition(f" {DeviceState.NO_PERMISSIONS}")
    if found and serial.strip():
        return serial.rstrip(), DeviceState.NO_PERMISSIONS, _facts(rest.rsplit(maxsplit=MAX_FACTS))
    facts = _facts(line.rsplit(maxsplit=MAX_FACTS))
    before = line.rsplit(maxsplit=len(facts) + 1)
    word = before[1] if len(before) == len(facts) + 2 else ""
    return before[0] if word else "", DeviceState(word) if word in _STATES else None, facts


def _facts(words: list[str]) -> list[str]:
    """The last words that are all facts."""
    n_facts = 0
    while n_facts < len(words) and _FACT.fullmatch(words[-1 - n_facts]):
        n_facts += 1
    return words[len(words) - n_facts :]


def _service(line: str) -> MdnsService | None:
    words = line.rsplit(maxsplit=2)
    kind = _KIND.fullmatch(words[1]) if len(words) == 3 else None
    if kind is None or line[0].isspace():
        return None
    return MdnsService(name=words[0], kind=kind[1], address=words[2])


def _transport(serial: str, is_usb: bool) -> Transport:
    if is_usb:
        return Transport.USB
    if "._adb" in serial and "._tcp" in serial:
        return Transport.MDNS
    if re.fullmatch(r"emulator-\d++", serial, re.ASCII):
        return Transport.EMULATOR
    return Transport.TCP if is_network_serial(serial) else Transport.USB
