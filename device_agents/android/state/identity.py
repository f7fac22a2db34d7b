"""Which phone answers: asked before every repeat, since an address can lead to another one."""

import shlex
from dataclasses import dataclass

from fleetrank.device_agents.android.adb.phone import Phone
from fleetrank.device_agents.android.adb.sections import read_sections
from fleetrank.device_agents.android.state.probe_text import VirtualMode, hash_serial, virtual_mode
from fleetrank.device_agents.contract.agent import StopRequested, never_stop
from fleetrank.device_agents.contract.vocabulary import Origin
from fleetrank.device_agents.errors import UnusableDeviceError

_TIMEOUT_S = 20.0
_SCRIPT = """
section serial; getprop ro.serialno
section boot_serial; getprop ro.boot.serialno
section virtual; getprop ro.fleetrank.virtual
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a phone is.

    Attributes:
        serial_hash: see `PhoneFacts`.
        virtual: `None` is a real phone.
    """

    serial_hash: str
    virtual: VirtualMode | None

    @property
    def origin(self) -> Origin:
        """What every row made on it carries."""
        return Origin.MEASURED if self.virtual is None else Origin.VIRTUAL


def identify(
    phone: Phone, expected_hash: str | None, stop_requested: StopRequested = never_stop
) -> Identity:
    """Asks a phone who it is.

    Raises:
        UnusableDeviceError: it tells no serial number, or is not the phone that was registered.
    """
    told = read_sections(phone, _SCRIPT, timeout_s=_TIMEOUT_S, stop_requested=stop_requested)
    serial = told.get("serial", "").strip() or told.get("boot_serial", "").strip()
    if not serial:
        raise UnusableDeviceError(
            f"phone {phone.serial!r} tells no serial number, so it cannot be told from others",
            "check `adb shell getprop ro.serialno`",
        )
    found_hash = hash_serial(serial)
    if expected_hash is not None and found_hash != expected_hash:
        raise UnusableDeviceError(
            f"another phone than the registered one answers at {phone.serial!r}",
            f"register this one: `fleetrank devices add --adb {shlex.quote(phone.serial)}`",
        )
    virtual = virtual_mode(told.get("virtual", "").strip())
    return Identity(serial_hash=found_hash, virtual=virtual)
