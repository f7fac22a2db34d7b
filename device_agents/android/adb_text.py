"""Parses adb's texts: devices, network services, answers to `connect`, rejections.

Source: formats of adb 29.0.6 and 36.0.0 (`client/commandline.cpp`, `transport.cpp` and
    `adb_mdns.cpp` of packages/modules/adb), checked on running versions.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from fleetrank.device_agents.contract.kind import SeenDevice
from fleetrank.device_agents.device_output import lines_of
from fleetrank.device_agents.errors import TransientError, UnusableDeviceError
from fleetrank.foundation.errors import FleetError


class DeviceState(StrEnum):
    """The state that adb reports for a device."""

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
    DETACHED = "detached"
    HOST = "host"
    ABSENT = "absent"
    SAME_SERIAL = "same serial"
    UNKNOWN = "unknown"


class Transport(StrEnum):
    """How adb reaches a device."""

    USB = "usb"
    TCP = "tcp"
    MDNS = "mdns"
    EMULATOR = "emulator"


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
    DeviceState.DEVICE: "nothing; `fleetrank devices add` with `adb=SERIAL` registers it",
    DeviceState.OFFLINE: "unplug it and plug it in again, or `adb reconnect`; restart the phone "
    "if that does not help",
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
    DeviceState.DETACHED: "run `adb -s SERIAL attach`: adb released the phone for other programs",
    DeviceState.SAME_SERIAL: "adb cannot distinguish phones with one serial number: disconnect "
    "all but one, or use the others by their network addresses",
    DeviceState.HOST: "this is a computer, not a phone; remove it from the list",
    DeviceState.ABSENT: "plug the phone in, or check its address; enable USB debugging in its "
    "developer options; `fleetrank devices list` with `found=true` lists phones",
    DeviceState.UNKNOWN: "restart the phone; `fleetrank devices list` with `found=true` lists "
    "phones",
}
"""What a person can do about each state."""
MIN_LINE_CHARACTERS = len("a host")
"""Least length of a line that names a device. Thousands of shorter lines are skipped cheaply."""
MAX_FACTS = 16
"""Most facts after the state of a device; adb 36 prints six."""
_USB_PORT = re.compile(r"(?:usb:)?+\d++-[\d.]++")
_FACT = re.compile(r"[\w-]++:\S*+|\d++-[\d.]++")
_KIND = re.compile(r"(_adb[\w-]*+\._tcp)\.?+")
_PORT = re.compile(r"\d{1,5}")
_CONNECTED = ("connected to ", "already connected to ")
_STATES = set(DeviceState) - {
    DeviceState.ABSENT,
    DeviceState.NO_PERMISSIONS,
    DeviceState.SAME_SERIAL,
}
"""States that adb prints as one word."""
_REFUSALS: tuple[tuple[str, DeviceState], ...] = (
    ("device unauthorized", DeviceState.UNAUTHORIZED),
    ("failed to authenticate", DeviceState.UNAUTHORIZED),
    ("still authorizing", DeviceState.AUTHORIZING),
    ("still connecting", DeviceState.CONNECTING),
    ("insufficient permissions", DeviceState.NO_PERMISSIONS),
    ("no permissions", DeviceState.NO_PERMISSIONS),
    ("more than one device", DeviceState.SAME_SERIAL),
    ("offline", DeviceState.OFFLINE),
    ("not found", DeviceState.ABSENT),
    ("no devices", DeviceState.ABSENT),
    ("failed to connect", DeviceState.ABSENT),
    ("unable to connect", DeviceState.ABSENT),
)
"""The first part that adb's message contains, in any case, decides the state. A serial may contain
any of these parts, so it is removed from the text first."""
_PERMANENT = (DeviceState.UNAUTHORIZED, DeviceState.NO_PERMISSIONS, DeviceState.SAME_SERIAL)
MAX_TEXT = 500
"""Most characters of a foreign text that a message repeats."""


def parse_devices(text: str) -> tuple[SeenDevice, ...]:
    """Reads `adb devices -l`, with or without its heading; other lines are skipped.

    Its values come from the phone and are not verified. A model has `_` for every character that is
    not a letter or digit.
    """
    seen = (_seen(line) for line in lines_of(text) if len(line) >= MIN_LINE_CHARACTERS)
    return tuple(device for device in seen if device is not None)


def parse_mdns_services(text: str) -> tuple[MdnsService, ...]:
    """Reads `adb mdns services`, with or without its heading."""
    services = (_service(line) for line in lines_of(text) if "_adb" in line)
    return tuple(service for service in services if service is not None)


def is_connected(text: str) -> bool:
    """Whether adb's answer to `connect` means success; the exit code is 0 in both cases."""
    return text.lstrip().startswith(_CONNECTED)


_WIRELESS = "._adb-tls-connect._tcp"
"""Source: adb_mdns.h of AOSP: the service of phones that were paired."""


def is_network_serial(serial: str) -> bool:
    """Whether a serial is an address that `adb connect` accepts: `host:port`, or an mDNS name.

    The port of wireless debugging changes each time it is switched on; the name stays.
    """
    if serial.rstrip(".").endswith(_WIRELESS):
        return True
    host, _, port = serial.rpartition(":")
    return bool(host) and _PORT.fullmatch(port) is not None


def error_of_refusal(serial: str, text: str) -> FleetError:
    """Returns the error, with its remedy, for a request that adb rejected."""
    reported = (text.replace(serial, "") if serial else text).lower()
    state = next((state for part, state in _REFUSALS if part in reported), DeviceState.UNKNOWN)
    message = f"adb rejects phone {serial!r}: {shown(text)}"
    error = UnusableDeviceError if state in _PERMANENT else TransientError
    return error(message, REMEDIES[state])


def shown(text: str) -> str:
    """Prepares a foreign text for a message: one line, no control characters, shortened."""
    line = " ".join(text.split())[:MAX_TEXT]
    return "".join(letter if letter.isprintable() else "?" for letter in line)


def _seen(line: str) -> SeenDevice | None:
    """Splits serial, state and facts. Serials may contain blanks, and so does one state."""
    serial, state, facts = _parts(line)
    if state is None or not serial.strip():
        return None
    named = {name: value for name, colon, value in (it.partition(":") for it in facts) if colon}
    is_usb = "usb" in named or any(map(_USB_PORT.fullmatch, facts))
    return SeenDevice(
        address=serial,
        state=state.value,
        transport=_transport(serial, is_usb).value,
        model=named.get("model") or None,
        remedy=None if state is DeviceState.DEVICE else REMEDIES[state],
    )


def _parts(line: str) -> tuple[str, DeviceState | None, list[str]]:
    """Serial, state and facts; the state is the last word before the facts, or `no permissions`."""
    serial, found, rest = line.partition(DeviceState.NO_PERMISSIONS)
    if found and serial.strip():
        return serial.rstrip(), DeviceState.NO_PERMISSIONS, _facts(rest.rsplit(maxsplit=MAX_FACTS))
    facts = _facts(line.rsplit(maxsplit=MAX_FACTS))
    before = line.rsplit(maxsplit=len(facts) + 1)
    word = before[1] if len(before) == len(facts) + 2 else ""
    return before[0] if word else "", DeviceState(word) if word in _STATES else None, facts


def _facts(words: list[str]) -> list[str]:
    """Returns the words at the end that are all facts."""
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
