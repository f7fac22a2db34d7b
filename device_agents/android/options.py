"""Options of an `android` device file."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from fleetrank.device_agents.android.state.boot import BOOT_LIMIT_S, SETTLE_S
from fleetrank.device_agents.android.state.readiness import PhoneRules
from fleetrank.device_agents.contract.agent_options import read_fields
from fleetrank.device_agents.contract.task import OptionValue

TOOLS = ("benchmark_model", "executor_runner", "onnxruntime_perf_test")
"""The programs of `runners`; each one is also an option."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneOptions:
    """How to reach a phone, its identity, and the programs it was registered with.

    Attributes:
        serial: as `adb devices` shows it: a serial number, or `host:port`.
        serial_hash: hash of the phone's own serial number at registration; another phone that
            answers under `serial` is rejected.
        virtual: the mode in which a virtual phone was registered.
        adb: path of the adb binary; if not given, `adb_server.find_adb` chooses it.
        adb_port: port of the adb server; if not given, `adb_server.find_port` chooses it.
        settle_s: how long a phone rests after its start, before a measurement.
        boot_limit_s: how long to wait for a phone that is lost or restarts.
        benchmark_model: SHA-256 of the program that runs TFLite files. The other two programs
            have the same kind of option.
    """

    serial: str
    serial_hash: str | None = None
    virtual: str | None = None
    adb: str | None = None
    adb_port: int | None = None
    settle_s: float = SETTLE_S
    boot_limit_s: float = BOOT_LIMIT_S
    benchmark_model: str | None = None
    executor_runner: str | None = None
    onnxruntime_perf_test: str | None = None

    @property
    def tools(self) -> dict[str, str]:
        """SHA-256 of each program, by the program's name."""
        return {name: getattr(self, name) for name in TOOLS if getattr(self, name) is not None}


def read_options(options: Mapping[str, OptionValue]) -> tuple[PhoneOptions, PhoneRules]:
    """Splits the options of a device file into `PhoneOptions` and `PhoneRules`.

    Raises:
        PermanentError: an unknown or missing name, or a value of another type.
    """
    names = [field.name for field in fields(PhoneRules)]
    rules = {name: value for name, value in options.items() if name in names}
    rest = {name: value for name, value in options.items() if name not in names}
    return (
        read_fields(PhoneOptions, "android", rest, read_elsewhere=names),
        read_fields(PhoneRules, "android", rules),
    )
