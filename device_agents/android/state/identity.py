"""Reads which phone answers and what it is, and locks it for one process."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fleetrank.device_agents.android.adb.phone import Phone, read_sections
from fleetrank.device_agents.android.state.cores import CORES_SCRIPT
from fleetrank.device_agents.android.state.probe_text import (
    PROPERTIES,
    PhoneFacts,
    facts_of_sections,
    hash_serial,
    virtual_mode,
)
from fleetrank.device_agents.contract.agent import StopRequested, never_stop
from fleetrank.device_agents.contract.registration import VirtualMode
from fleetrank.device_agents.errors import TransientError, UnusableDeviceError
from fleetrank.foundation.lease import (
    give_up_at_once,
    holder,
    open_lease,
    runtime_folder,
    sign,
    wait_for_lock,
)
from fleetrank.foundation.vocabulary import Origin

_TIMEOUT_S = 20.0
_IDENTITY_SCRIPT = """
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
    reported = read_sections(
        phone, _IDENTITY_SCRIPT, timeout_s=_TIMEOUT_S, stop_requested=stop_requested
    )
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


PROBE_TIMEOUT_S = 60.0
"""SurfaceFlinger of a slow phone alone takes seconds."""
_PROPERTIES_SCRIPT = "".join(f"section {name}; getprop {name}\n" for name in PROPERTIES)
_PROBE_SCRIPT = f"""
{{
{_PROPERTIES_SCRIPT}
section memory; cat /proc/meminfo
section storage; df -k /data/local/tmp
section battery; dumpsys battery
section thermal; dumpsys thermalservice
section gpu; dumpsys SurfaceFlinger | grep -m 1 GLES:
section taskset; command -v taskset
}} 2>/dev/null
{CORES_SCRIPT}
"""


def probe_phone(phone: Phone) -> PhoneFacts:
    """Reads all facts of a phone; raises the same errors as `Phone.shell`."""
    sections = read_sections(phone, _PROBE_SCRIPT, timeout_s=PROBE_TIMEOUT_S)
    return facts_of_sections(sections, has_exit_codes=phone.has_exit_codes())


@contextmanager
def phone_lease(
    serial_hash: str, *, purpose: str = "a measurement on it", folder: Path | None = None
) -> Iterator[None]:
    """Locks a phone until the end of the block; the system releases the lock if the process dies.

    Args:
        serial_hash: of the phone's own serial number (`PhoneFacts.serial_hash`).
        purpose: who holds it and why; shown to processes that find it in use.
        folder: folder of the leases; the user's own folder if not given.

    Raises:
        TransientError: another process, or another thread of this one, holds it.
        PermanentError: no safe folder for the lease exists.
    """
    with open_lease((folder or runtime_folder()) / f"phone-{serial_hash[:32]}.lease") as lease:
        if not wait_for_lock(lease, give_up_at_once):
            raise TransientError(
                f"the phone is in use: {holder(lease)}",
                "wait until it is released; only one process may measure on a phone",
            )
        sign(lease, purpose)
        yield
