"""Reads which phone answers and what it is."""

from collections.abc import Sequence
from dataclasses import dataclass

from fleetrank.device_agents.android.phone import Phone, read_sections
from fleetrank.device_agents.android.state.clusters import TOPOLOGY_SCRIPT
from fleetrank.device_agents.android.state.phone_cores import CORES_SCRIPT
from fleetrank.device_agents.android.state.probe_text import (
    PROPERTIES,
    PhoneFacts,
    facts_of_sections,
    hash_identity,
    hash_serial,
    hash_unit,
    virtual_mode,
)
from fleetrank.device_agents.contract.agent import StopRequested, never_stop
from fleetrank.device_agents.contract.kind import VirtualMode, origin_of
from fleetrank.device_agents.errors import UnusableDeviceError
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
    def hashes(self) -> tuple[str | None, ...]:
        """All that it knows of itself."""
        return self.serial_hash, self.identity_hash, self.unit_hash

    @property
    def lease_name(self) -> str:
        """What the lease of this phone is named by; twins have different leases."""
        return self.unit_hash or self.identity_hash

    @property
    def origin(self) -> Origin:
        """The origin that every row from it stores."""
        return origin_of(self.virtual)


def identify(
    phone: Phone,
    registered: Sequence[str | None],
    stop_requested: StopRequested = never_stop,
) -> Identity:
    """Reads the identity of a phone, and compares it with the registered hashes.

    `None` stands for those that an older version did not store. A phone that does not say its
    `android_id` now is not distinguished from its twins.

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
    serial_hash = hash_serial(serial)
    avd = reported.get("avd") or reported.get("old_avd")
    identity = hash_identity(serial_hash, reported.get("model"), reported.get("fingerprint"), avd)
    found = Identity(
        serial_hash=serial_hash,
        identity_hash=identity,
        unit_hash=hash_unit(identity, reported.get("android_id")),
        virtual=virtual_mode(reported.get("virtual")),
    )
    pairs = zip(registered, found.hashes, strict=True)
    if any(None not in pair and pair[0] != pair[1] for pair in pairs):
        raise UnusableDeviceError(
            f"the phone at {phone.serial!r} is not the registered phone",
            f"register this phone: `fleetrank devices add` with `adb={phone.serial}`",
        )
    return found


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
