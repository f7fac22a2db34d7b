"""Identifies the phone before every repeat, because an address can lead to another phone."""

import shlex
from dataclasses import dataclass

from fleetrank.device_agents.android.adb.phone import Phone
from fleetrank.device_agents.android.adb.sections import read_sections
from fleetrank.device_agents.android.state.probe_text import hash_serial, virtual_mode
from fleetrank.device_agents.contract.agent import StopRequested, never_stop
from fleetrank.device_agents.contract.registration import VirtualMode
from fleetrank.device_agents.errors import UnusableDeviceError
from fleetrank.foundation.vocabulary import Origin

_TIMEOUT_S = 20.0
_SCRIPT = """
section serial; getprop ro.serialno
section boot_serial; getprop ro.boot.serialno
section virtual; getprop ro.fleetrank.virtual
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The identity of a phone.

    Attributes:
        serial_hash: the same as in `PhoneFacts`.
        virtual: `None` for a real phone.
    """

    serial_hash: str
    virtual: VirtualMode | None

    @property
    def origin(self) -> Origin:
        """The origin that every row from it stores."""
        return Origin.MEASURED if self.virtual is None else Origin.VIRTUAL


def identify(
    phone: Phone, expected_hash: str | None, stop_requested: StopRequested = never_stop
) -> Identity:
    """Reads the identity of a phone.

    Raises:
        UnusableDeviceError: it reports no serial number, or is not the registered phone.
    """
    reported = read_sections(phone, _SCRIPT, timeout_s=_TIMEOUT_S, stop_requested=stop_requested)
    serial = reported.get("serial", "").strip() or reported.get("boot_serial", "").strip()
    if not serial:
        raise UnusableDeviceError(
            f"phone {phone.serial!r} reports no serial number, so it cannot be identified",
            "check `adb shell getprop ro.serialno`",
        )
    found_hash = hash_serial(serial)
    if expected_hash is not None and found_hash != expected_hash:
        raise UnusableDeviceError(
            f"the phone at {phone.serial!r} is not the registered phone",
            f"register this phone: `fleetrank devices add --adb {shlex.quote(phone.serial)}`",
        )
    virtual = virtual_mode(reported.get("virtual", "").strip())
    return Identity(serial_hash=found_hash, virtual=virtual)
