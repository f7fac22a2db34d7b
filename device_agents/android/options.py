"""Options of an `android` device file."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType

from fleetrank.device_agents.android.programs.phone_program import PROGRAMS
from fleetrank.device_agents.android.state.fitness import BOOT_LIMIT_S, SETTLE_S, PhoneRules
from fleetrank.device_agents.android.state.identity import RegisteredIdentity
from fleetrank.device_agents.android.state.power_text import LOOK_S, MAX_ENERGY_S
from fleetrank.device_agents.contract.agent import read_fields
from fleetrank.device_agents.contract.task import OptionValue
from fleetrank.device_agents.errors import PermanentError


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneReach:
    """How to reach a phone, and its identity.

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

    @property
    def identity(self) -> RegisteredIdentity:
        """What the phone at the address must be."""
        return RegisteredIdentity(
            serial_hash=self.serial_hash,
            identity_hash=self.identity_hash,
            unit_hash=self.unit_hash,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneOptions(PhoneReach):
    """The options of a phone without its rules.

    Attributes:
        programs: SHA-256 of each program that the phone was registered with, by the program's
            name; each name in `phone_program.PROGRAMS` is an option.
    """

    programs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def read_options(options: Mapping[str, OptionValue]) -> tuple[PhoneOptions, PhoneRules]:
    """Splits the options of a device file into `PhoneOptions` and `PhoneRules`.

    Raises:
        PermanentError: an unknown or missing name, or a value of another type.
    """
    names = [field.name for field in fields(PhoneRules)]
    programs = {name: value for name, value in options.items() if name in PROGRAMS}
    rules = {name: value for name, value in options.items() if name in names}
    rest = {name: options[name] for name in options if name not in programs | rules}
    reach = read_fields(PhoneReach, "android", rest, read_elsewhere=(*PROGRAMS, *names))
    return (
        PhoneOptions(**asdict(reach), programs=_checksums(programs)),
        read_fields(PhoneRules, "android", rules),
    )


def _checksums(programs: Mapping[str, OptionValue]) -> dict[str, str]:
    """The checksums, which are text.

    Raises:
        PermanentError: a value of another type.
    """
    checked = {}
    for name, value in programs.items():
        if not isinstance(value, str):
            raise PermanentError(
                f"option {name} is {value!r}", "the value must be the SHA-256 of the program"
            )
        checked[name] = value
    return checked
