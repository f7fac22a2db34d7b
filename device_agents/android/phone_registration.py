"""Registers a phone: its properties, the programs that run on it, and its repeatability."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from fleetrank.device_agents.android.adb_server import AdbServer, find_adb
from fleetrank.device_agents.android.agent import AndroidAgent, read_options
from fleetrank.device_agents.android.execution.program_files import ProgramFile, read_program
from fleetrank.device_agents.android.execution.program_run import CANARY_POLICY, CANARY_TIMEOUT_S
from fleetrank.device_agents.android.execution.program_store import ProgramStore
from fleetrank.device_agents.android.execution.storage import PhoneStorage
from fleetrank.device_agents.android.phone import Phone
from fleetrank.device_agents.android.programs.delegate_flags import backend_of_library
from fleetrank.device_agents.android.programs.phone_program import PROGRAMS
from fleetrank.device_agents.android.state.fitness import PhoneRules
from fleetrank.device_agents.android.state.identity import probe_phone
from fleetrank.device_agents.android.state.probe_text import PhoneFacts, why_refused
from fleetrank.device_agents.android.state.settings import FOLDER, restore_settings
from fleetrank.device_agents.contract.agent import Cluster, Say
from fleetrank.device_agents.contract.kind import CanaryPlan, Fact, RegistrationRequest
from fleetrank.device_agents.contract.task import OptionValue
from fleetrank.device_agents.errors import PermanentError, UnsupportedError
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.wording import count_of

_PROBED = (
    "manufacturer", "model", "soc", "memory_bytes", "android_release", "sdk", "build",
    "fingerprint", "avd", "gpu", "has_thermal", "has_battery", "has_exit_codes", "has_taskset",
)  # fmt: skip
"""Facts that identify a phone; free space and current clocks do not."""
_CANARY_PROGRAM = "benchmark_model"
_CAP = "load_cap_mhz"
SERVER = "adb_server"
_DELEGATES = ("gpu", "nnapi")
"""Backends of the program that a phone may lack; the CPU backends always exist."""
_NIGHTLY = (
    "https://storage.googleapis.com/tensorflow-nightly-public/prod/tensorflow/release/lite/tools/"
    "nightly/latest"
)
_BUILDS = {
    ("benchmark_model", "arm64-v8a"): f"{_NIGHTLY}/android_aarch64_benchmark_model",
    ("benchmark_model", "armeabi-v7a"): f"{_NIGHTLY}/android_arm_benchmark_model",
}
"""Where vendors have builds, by program and ABI; they distribute no others for Android."""


class PhoneRegistrar:
    """Registers phones through one adb server."""

    programs = tuple(PROGRAMS)
    address_in = "serial"
    least_shares: Mapping[str, float] = MappingProxyType({_CAP: PhoneRules().min_cap_share})

    def __init__(self, options: Mapping[str, OptionValue]) -> None:
        """Takes adb and its port from the options of a phone."""
        self._options = options
        self._store = ProgramStore()

    def meet(self, request: RegistrationRequest, say: Say) -> "NewPhone":
        """Reads a phone's properties; connects to it first if it is on the network."""
        # A phone can have moved: what the request does not say is that of the default server.
        options = {**self._options, **request.options}
        adb, address = options.get("adb"), options.get(SERVER)
        server = AdbServer(
            None if adb is None else find_adb(str(adb)),
            address=None if address is None else str(address),
        )
        phone = Phone(server, request.address)
        phone.connect()
        facts = probe_phone(phone)
        refusal = why_refused(facts)
        if refusal is not None:
            raise UnsupportedError(f"{facts.device_model}: {refusal.reason}", refusal.remedy)
        say(f"{facts.device_model}, Android {facts.android_release}, {facts.soc}")
        for warning in (_offline_warning(facts), cells_warning(facts, options)):
            if warning is not None:
                say(warning)
        if address is not None:
            request = replace(request, options={**request.options, SERVER: address})
        return NewPhone(request=request, found=facts, store=self._store, say=say)

    def identity_of(self, options: Mapping[str, OptionValue]) -> str | None:
        """The hash of serial number, model, build and emulator, and that of the unit if known."""
        known = (options.get("identity_hash"), options.get("unit_hash"))
        return _joined(*(None if one is None else str(one) for one in known))

    def is_same(self, identity: str, other: str) -> bool:
        """Whether both are of one phone; its unit counts only if both say it."""
        (phone, _, unit), (known, _, twin) = identity.partition(_AND), other.partition(_AND)
        return phone == known and (not unit or not twin or unit == twin)

    def canary_tolerance(self, options: Mapping[str, OptionValue]) -> float:
        """As in its rules."""
        return read_options(options).min_canary_tolerance

    def clean(self, options: Mapping[str, OptionValue]) -> None:
        """Deletes our folder on a phone, and restores the settings saved in it before a crash."""
        try:
            agent = AndroidAgent(options)
            phone = agent.phone()
            with agent.held(phone):
                restore_settings(phone)
                PhoneStorage(phone).clear()
        except FleetError as error:
            serial = shlex.quote(str(options.get("serial")))
            raise PermanentError(
                f"its folder on the phone was not deleted: {error.message}",
                f"adb -s {serial} shell rm -r {FOLDER}",
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPhone:
    """A phone that answered; `store` is the folder for its programs on this host."""

    request: RegistrationRequest
    found: PhoneFacts
    store: ProgramStore
    say: Say

    @property
    def identity(self) -> str | None:
        """As `PhoneRegistrar.identity_of`."""
        return _joined(self.found.identity_hash, self.found.unit_hash)

    @property
    def model(self) -> str:
        """The name of its model, or `phone`."""
        return self.found.model or "phone"

    def options(self, before: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
        """The options for its agent, with the program that it gets for each runtime."""
        options = {name: value for name, value in before.items() if name != SERVER}
        options |= self.request.options
        options["serial"] = self.request.address
        for name in ("serial_hash", "identity_hash", "unit_hash"):
            if (found := getattr(self.found, name)) is not None:
                options[name] = found
        if self.found.virtual is not None:
            options["virtual"] = self.found.virtual.value
        options |= {one.name: one.sha256 for one in self._programs()}
        if not set(options) & set(PROGRAMS):
            raise self._no_program(_CANARY_PROGRAM)
        read_options(options)
        return options

    @property
    def facts(self) -> dict[str, Fact]:
        """Those that identify a phone."""
        stored: dict[str, Fact] = {name: getattr(self.found, name) for name in _PROBED}
        return stored | {"abis": ",".join(self.found.abis)}

    @property
    def clusters(self) -> tuple[Cluster, ...]:
        """The cores to pin to; none while a core is offline, since the kernel refuses it."""
        if not self.found.has_taskset or self.found.offline_cores:
            return ()
        return self.found.clusters

    def canary(self, options: Mapping[str, OptionValue]) -> CanaryPlan | None:
        """Runs it with its program, and then with each delegate."""
        if _CANARY_PROGRAM not in options:
            self.say(
                f"no canary without {_CANARY_PROGRAM}: only temperature and clocks are checked"
            )
            return None
        # Backends of the libraries beside the program that call themselves delegates.
        beside = self.store.find(_CANARY_PROGRAM, str(options[_CANARY_PROGRAM])).folder
        named = (backend_of_library(p.name) for p in beside if "delegate" in p.name.lower())
        return CanaryPlan(
            agent=AndroidAgent(options),
            policy=CANARY_POLICY,
            timeout_s=CANARY_TIMEOUT_S,
            delegates=(*_DELEGATES, *(one for one in named if one is not None)),
            cap_option=_CAP,
        )

    def _programs(self) -> list[ProgramFile]:
        """The user's files; a program that was given earlier stays.

        Raises:
            PermanentError: a file or folder is refused.
        """
        given = self.request.programs
        chosen = [read_program(name, given[name]) for name in PROGRAMS if name in given]
        for program in chosen:
            self.store.add(program)
        return chosen

    def _no_program(self, name: str) -> UnsupportedError:
        """Says where the vendor has a build; nothing unverified is downloaded."""
        abis = self.found.abis
        remedy = f"give a file: `tool={name}=PATH`"
        address = next((_BUILDS[name, abi] for abi in abis if (name, abi) in _BUILDS), None)
        if address is None:
            return UnsupportedError(f"no build of {name} is known for {', '.join(abis)}", remedy)
        return UnsupportedError(
            f"the vendor's {name} for {', '.join(abis)} changes each night, so it is not "
            "downloaded unverified",
            f"download {address} yourself and {remedy}",
        )


def _offline_warning(facts: PhoneFacts) -> str | None:
    offline = facts.offline_cores
    if not offline:
        return None
    cores = count_of(len(offline), "core is", "cores are")
    return (
        f"{cores} offline now ({', '.join(map(str, offline))}): its programs are not pinned; "
        "register it again while all cores are online to pin them"
    )


_SMALL_MAH, _SINCE_SDK = 3_300, 29
"""Phones since Android 10 mostly hold more; two cells in series of 4,000 to 6,500 mAh less."""


def cells_warning(facts: PhoneFacts, options: Mapping[str, OptionValue]) -> str | None:
    """A doubt about the number of battery cells, which the user has not stated; or `None`."""
    full, is_recent = facts.full_charge_mah, (facts.sdk or 0) >= _SINCE_SDK
    if full is None or full > _SMALL_MAH or not is_recent or "cells" in options:
        return None
    return (
        f"its full battery holds {full:,.0f} mAh by its own reading: if its maker states about "
        "twice as much, it has two cells in series and its energies would be half: register it "
        "with the option cells=2; with cells=1 this is not said again"
    )


_AND = "."
"""Between the hash of a phone and that of its unit."""


def _joined(identity_hash: str | None, unit_hash: str | None) -> str | None:
    return _AND.join(filter(None, (identity_hash, unit_hash))) or None


def seen_here() -> tuple[str, ...] | None:
    """Serials that this host's adb server lists; starts no server, `None` if no server runs."""
    try:
        server = AdbServer()
        return tuple(seen.address for seen in server.devices()) if server.answers() else None
    except FleetError:
        return None  # no adb on this host
