"""Options of an `android` device file."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetrank.device_agents.android.programs.phone_program import PROGRAMS
from fleetrank.device_agents.android.state.fitness import BOOT_LIMIT_S, SETTLE_S, PhoneRules
from fleetrank.device_agents.android.state.power_text import LOOK_S, MAX_ENERGY_S
from fleetrank.device_agents.contract.agent import OPTION_NAMES, read_fields
from fleetrank.device_agents.contract.task import OptionValue


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneOptions(PhoneRules):
    """How to reach a phone, its identity, its programs, and when it is ready.

    Attributes:
        serial: as `adb devices` shows it: a serial number, or `host:port`.
        serial_hash: hash of the phone's own serial number at registration; another phone that
            answers under `serial` is rejected.
        identity_hash: hash of what together names the phone; `None` if an older version
            registered it. A serial number can be that of another phone, too.
        unit_hash: hash of what distinguishes it from its twins; `None` if it was not reported.
        virtual: the mode in which a virtual phone was registered.
        adb: path of the adb binary; if not given, `adb_server.find_adb` chooses it.
        adb_server: `HOST:PORT` of the adb server; if not given, `adb_text.find_address` chooses
            it.
        settle_s: how long a phone rests after its start, before a measurement.
        load_cap_mhz: the highest clock cap under load at registration; `None` if it was not seen.
        energy_look_s: time between two looks at the power while energy is counted.
        max_energy_s: the longest run for energy; `energy_s` of the sweep is the shortest.
        boot_limit_s: how long to wait for a phone that is lost or restarts.
        programs: SHA-256 of each program that the phone was registered with, by name; in a device
            file each name in `PROGRAMS` is an option.
    """

    serial: str
    serial_hash: str | None = None
    identity_hash: str | None = None
    unit_hash: str | None = None
    virtual: str | None = None
    adb: str | None = None
    adb_server: str | None = None
    settle_s: float = SETTLE_S
    boot_limit_s: float = BOOT_LIMIT_S
    load_cap_mhz: float | None = None
    energy_look_s: float = LOOK_S
    max_energy_s: float = MAX_ENERGY_S
    programs: Mapping[str, str] = field(default_factory=dict, metadata={OPTION_NAMES: PROGRAMS})

    @property
    def hashes(self) -> tuple[str | None, ...]:
        """What the phone at the address must have, as of `Identity.hashes`."""
        return self.serial_hash, self.identity_hash, self.unit_hash


def read_options(options: Mapping[str, OptionValue]) -> PhoneOptions:
    """Reads the options of a device file.

    Raises:
        PermanentError: an unknown or missing name, or a value of another type.
    """
    return read_fields(PhoneOptions, "android", options)
