"""Registers a phone: its properties, the programs that run on it, and its repeatability."""

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import fmean

from fleetrank.device_agents.android.adb.adb_server import AdbServer, find_adb
from fleetrank.device_agents.android.adb.phone import Phone
from fleetrank.device_agents.android.agent import AndroidAgent
from fleetrank.device_agents.android.execution.catalogue import (
    ProgramFile,
    choose_program,
    fetch,
    file_sha256,
    load_catalogue,
)
from fleetrank.device_agents.android.execution.storage import PhoneStorage, ProgramStore
from fleetrank.device_agents.android.options import read_options
from fleetrank.device_agents.android.programs.phone_program import PROGRAMS
from fleetrank.device_agents.android.registration.trial import PROGRAM, PhoneTrial
from fleetrank.device_agents.android.state.fitness import CanaryReading, PhoneRules, is_canary_off
from fleetrank.device_agents.android.state.identity import probe_phone
from fleetrank.device_agents.android.state.probe_text import PhoneFacts, why_refused
from fleetrank.device_agents.android.state.settings import FOLDER, restore_settings
from fleetrank.device_agents.contract.registration import (
    CanaryFile,
    Change,
    RegisteredDevice,
    RegistrationData,
    RegistrationRequest,
    Say,
)
from fleetrank.device_agents.contract.task import OptionValue
from fleetrank.device_agents.errors import PermanentError, UnsupportedError
from fleetrank.device_agents.virtual_phone.imitation.command import stand_in_of
from fleetrank.foundation.errors import FleetError

_PROBED = (
    "manufacturer", "model", "soc", "memory_bytes", "android_release", "sdk", "build",
    "fingerprint", "gpu", "has_thermal", "has_battery", "has_exit_codes", "has_taskset",
)  # fmt: skip
"""Facts that identify a phone; free space and current clocks do not."""


class PhoneRegistrar:
    """Registers phones through one adb server."""

    programs = tuple(PROGRAMS)

    def __init__(self, options: Mapping[str, OptionValue]) -> None:
        """Takes adb and its port from the options of a phone."""
        self._options = options
        self._store = ProgramStore()

    def meet(self, request: RegistrationRequest, say: Say) -> "NewPhone":
        """Reads a phone's properties; connects to it first if it is on the network."""
        phone = Phone(self._server(), request.address)
        phone.connect()
        facts = probe_phone(phone)
        refusal = why_refused(facts)
        if refusal is not None:
            raise UnsupportedError(f"{facts.device_model}: {refusal.reason}", refusal.remedy)
        say(f"{facts.device_model}, Android {facts.android_release}, {facts.soc}")
        return NewPhone(request=request, facts=facts, store=self._store, say=say)

    def _server(self) -> AdbServer:
        adb, port = self._options.get("adb"), self._options.get("adb_port")
        return AdbServer(
            find_adb(adb) if isinstance(adb, str) else None,
            port if isinstance(port, int) else None,
        )

    def identity_of(self, options: Mapping[str, OptionValue]) -> str | None:
        """The hash of the phone's own serial number."""
        return _text_or_none(options.get("serial_hash"))

    def address_of(self, options: Mapping[str, OptionValue]) -> str | None:
        """The serial as adb shows it."""
        return _text_or_none(options.get("serial"))

    def changes(self, before: RegisteredDevice, after: RegisteredDevice) -> tuple[Change, ...]:
        """Compares facts, programs and canary."""
        return changes_between(before, after)

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
    facts: PhoneFacts
    store: ProgramStore
    say: Say

    @property
    def identity(self) -> str | None:
        """The hash of the serial number that the phone reports."""
        return self.facts.serial_hash

    @property
    def model(self) -> str:
        """The name of its model, or `phone`."""
        return self.facts.model or "phone"

    def options(self, before: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
        """The options for its agent, with the program that it gets for each runtime."""
        is_virtual = self.facts.virtual is not None
        options: dict[str, OptionValue] = dict(before)
        if is_virtual:
            options["settle_s"] = 0.0
        options |= self.request.options
        options["serial"] = self.request.address
        if self.facts.serial_hash is not None:
            options["serial_hash"] = self.facts.serial_hash
        if self.facts.virtual is not None:
            options["virtual"] = self.facts.virtual.value
        options |= {one.name: one.sha256 for one in self._programs(options)}
        if not set(options) & set(PROGRAMS):
            # Requesting it by name raises an error with reason and remedy.
            self._choose(PROGRAM)
        read_options(options)
        return options

    def try_out(
        self, options: Mapping[str, OptionValue], canary: Callable[[], CanaryFile]
    ) -> RegistrationData:
        """Runs the canary and finds the delegates; skipped without the canary's program."""
        if PROGRAM not in options:
            self.say(f"no canary without {PROGRAM}: only temperature and clocks are checked")
            return registration_of(self.facts)
        trial = PhoneTrial(
            options=options,
            canary=canary(),
            affinity=registration_of(self.facts).canary_affinity,
            say=self.say,
        )
        latencies_ns = trial.latencies_ns()
        return registration_of(
            self.facts, canary_latency_ns=latencies_ns, delegates=trial.delegates()
        )

    def _programs(self, options: Mapping[str, OptionValue]) -> list[ProgramFile]:
        chosen = []
        for name in PROGRAMS:
            is_given = name in self.request.programs
            if name in options and not is_given and self.facts.virtual is None:
                continue
            try:
                program = self._choose(name)
            except UnsupportedError:
                continue
            self.store.add(program)
            chosen.append(program)
        return chosen

    def _choose(self, name: str) -> ProgramFile:
        if self.facts.virtual is not None and name not in self.request.programs:
            path = stand_in_of(name)
            return ProgramFile(name=name, path=path, sha256=file_sha256(path))
        return choose_program(
            name,
            self.facts.abis,
            own_paths=self.request.programs,
            catalogue=load_catalogue(),
            fetch=lambda entry: fetch(entry, self.store.folder),
        )


def registration_of(
    facts: PhoneFacts,
    *,
    canary_latency_ns: tuple[int, ...] = (),
    delegates: str | None = None,
) -> RegistrationData:
    """The part of a probe that the device file stores; empty values if no canary has run."""
    stored = {name: getattr(facts, name) for name in _PROBED} | {"abis": ",".join(facts.abis)}
    return RegistrationData(
        registered_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        facts=stored if delegates is None else stored | {"delegates": delegates},
        clusters=_clusters(facts),
        canary_latency_ns=canary_latency_ns,
    )


def _clusters(facts: PhoneFacts) -> tuple[tuple[int, ...], ...]:
    """Groups cores by clock; ignores cores without a clock (offline) if other cores report one."""
    if not facts.has_taskset:
        return ()
    clocked = tuple(cluster for cluster in facts.clusters if cluster.max_mhz is not None)
    return tuple(cluster.cores for cluster in clocked or facts.clusters)


def _text_or_none(value: OptionValue | None) -> str | None:
    return None if value is None else str(value)


MAX_SPREAD = 0.10
"""Largest accepted spread between canary runs: with more, the phone is not repeatable enough for
the 10 % ratio that a cell's canary is checked against."""


def changes_between(before: RegisteredDevice, after: RegisteredDevice) -> tuple[Change, ...]:
    """Compares two registrations of one phone: facts, programs, canary. Pure."""
    old, new = before.registration, after.registration
    return (
        *_differences(
            old.facts,
            new.facts,
            "the phone's system has changed: compare only sweeps measured after the change",
        ),
        *_differences(
            before.options, after.options, "sweeps that started earlier cannot be resumed with it"
        ),
        *_changed_canary(old, new),
    )


def _differences(
    old: Mapping[str, object], new: Mapping[str, object], meaning: str
) -> Iterator[Change]:
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) != new.get(name):
            yield Change(fact=name, registered=old.get(name), now=new.get(name), meaning=meaning)


def _changed_canary(old: RegistrationData, new: RegistrationData) -> list[Change]:
    changes = []
    if old.canary_latency_ns and new.canary_latency_ns:
        mean_old, mean_new = fmean(old.canary_latency_ns), fmean(new.canary_latency_ns)
        reading = CanaryReading(ratio=mean_new / mean_old, spread=old.canary_spread)
        if is_canary_off(reading, PhoneRules()):
            changes.append(
                Change(
                    fact="canary_latency_ns",
                    registered=round(mean_old),
                    now=round(mean_new),
                    meaning="measurements are rejected until it cools down or is registered again",
                )
            )
    if new.canary_spread is not None and new.canary_spread > MAX_SPREAD:
        changes.append(
            Change(
                fact="canary_spread",
                registered=_rounded(old.canary_spread),
                now=_rounded(new.canary_spread),
                meaning="its results vary too much: let it cool down and close its programs",
            )
        )
    return changes


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 3)
