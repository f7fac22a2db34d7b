"""Reads which phone answers and what it is, and locks it for one process."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fleetrank.device_agents.android.adb.phone import Phone, read_sections
from fleetrank.device_agents.android.state.clusters import TOPOLOGY_SCRIPT
from fleetrank.device_agents.android.state.cores import CORES_SCRIPT
from fleetrank.device_agents.android.state.probe_text import (
    PROPERTIES,
    PhoneFacts,
    facts_of_sections,
    virtual_mode,
)
from fleetrank.device_agents.android.state.serials import (
    hash_identity,
    hash_serial,
    hash_unit,
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
section model; getprop ro.product.model
section fingerprint; getprop ro.build.fingerprint
section avd; getprop ro.boot.qemu.avd_name
section old_avd; getprop ro.kernel.qemu.avd_name
section android_id; settings --user 0 get secure android_id
"""
"""The user is named because each user of a phone has another `android_id`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The identity of a phone.

    Attributes:
        serial_hash: the same as in `PhoneFacts`.
        identity_hash, unit_hash: the same as in `PhoneFacts`.
        virtual: `None` for a real phone.
    """

    serial_hash: str
    identity_hash: str
    unit_hash: str | None
    virtual: VirtualMode | None

    @property
    def lease_name(self) -> str:
        """What the lease of this phone is named by; twins have different leases."""
        return self.unit_hash or self.identity_hash

    @property
    def origin(self) -> Origin:
        """The origin that every row from it stores."""
        return Origin.MEASURED if self.virtual is None else Origin.VIRTUAL


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredIdentity:
    """The hashes in a device file; `None` for those that an older version did not store."""

    serial_hash: str | None
    identity_hash: str | None
    unit_hash: str | None


def identify(
    phone: Phone,
    registered: RegisteredIdentity,
    stop_requested: StopRequested = never_stop,
) -> Identity:
    """Reads the identity of a phone, and compares it with the registered hashes.

    A phone that does not say its `android_id` now is not distinguished from its twins.

    Raises:
        UnusableDeviceError: it reports no serial number, or is not the registered phone.
    """
    sections = read_sections(
        phone, _IDENTITY_SCRIPT, timeout_s=_TIMEOUT_S, stop_requested=stop_requested
    )
    reported = {name: text.strip() for name, text in sections.items()}
    serial = reported.get("serial") or reported.get("boot_serial")
    if not serial:
        raise UnusableDeviceError(
            f"phone {phone.serial!r} reports no serial number, so it cannot be identified",
            "check `adb shell getprop ro.serialno`",
        )
    found_hash = hash_serial(serial)
    avd = reported.get("avd") or reported.get("old_avd")
    identity = hash_identity(found_hash, reported.get("model"), reported.get("fingerprint"), avd)
    unit = hash_unit(identity, reported.get("android_id"))
    if (
        registered.serial_hash not in (None, found_hash)
        or registered.identity_hash not in (None, identity)
        or (unit is not None and registered.unit_hash not in (None, unit))
    ):
        raise UnusableDeviceError(
            f"the phone at {phone.serial!r} is not the registered phone",
            f"register this phone: `fleetrank devices add` with `adb={phone.serial}`",
        )
    virtual = virtual_mode(reported.get("virtual"))
    return Identity(serial_hash=found_hash, identity_hash=identity, unit_hash=unit, virtual=virtual)


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
section android_id; settings --user 0 get secure android_id
}} 2>/dev/null
{TOPOLOGY_SCRIPT}
{CORES_SCRIPT}
"""


def probe_phone(phone: Phone) -> PhoneFacts:
    """Reads all facts of a phone; raises the same errors as `Phone.shell`."""
    sections = read_sections(phone, _PROBE_SCRIPT, timeout_s=PROBE_TIMEOUT_S)
    return facts_of_sections(sections, has_exit_codes=phone.has_exit_codes())


@contextmanager
def phone_lease(
    name: str, *, purpose: str = "a measurement on it", folder: Path | None = None
) -> Iterator[None]:
    """Locks a phone until the end of the block; the system releases the lock if the process dies.

    Args:
        name: of the phone (`Identity.lease_name`, or the same of `PhoneFacts`).
        purpose: who holds it and why; shown to processes that find it in use.
        folder: folder of the leases; the user's own folder if not given.

    Raises:
        TransientError: another process, or another thread of this one, holds it.
        PermanentError: no safe folder for the lease exists.
    """
    with open_lease((folder or runtime_folder()) / f"phone-{name[:32]}.lease") as lease:
        if not wait_for_lock(lease, give_up_at_once):
            raise TransientError(
                f"the phone is in use: {holder(lease)}",
                "wait until it is released; only one process may measure on a phone",
            )
        sign(lease, purpose)
        yield
