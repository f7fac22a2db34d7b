"""Measures on one Android phone over adb: the options of its device file, and one repeat."""

import logging
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from fleetrank.device_agents.android.adb_server import AdbServer, find_adb
from fleetrank.device_agents.android.execution.core_watch import CoreWatch
from fleetrank.device_agents.android.execution.energy_run import EnergyRun, longest_energy_s
from fleetrank.device_agents.android.execution.program_run import (
    CANARY_TIMEOUT_S,
    PID_FILE,
    PhonePrograms,
    clean_runs,
    latency_of,
    read,
    run_bare,
)
from fleetrank.device_agents.android.execution.program_store import ProgramStore
from fleetrank.device_agents.android.execution.raw_log import encode_log
from fleetrank.device_agents.android.phone import Phone
from fleetrank.device_agents.android.programs.phone_program import (
    PROGRAMS,
    create_program,
    why_unsupported,
)
from fleetrank.device_agents.android.programs.program_output import ProgramCall, ProgramOutput
from fleetrank.device_agents.android.state.fitness import (
    NOTHING,
    PhoneConditions,
    PhoneRules,
    Validity,
    judge_validity,
    read_phone_conditions,
    to_conditions,
    why_unfit,
)
from fleetrank.device_agents.android.state.identity import identify, probe_phone
from fleetrank.device_agents.android.state.phone_lock import (
    phone_held,
    phone_lock,
    require_unlocked,
)
from fleetrank.device_agents.android.state.power_text import LOOK_S, MAX_ENERGY_S
from fleetrank.device_agents.android.state.probe_text import to_device_facts, why_refused
from fleetrank.device_agents.android.state.run_clocks import UNSEEN, RunClocks
from fleetrank.device_agents.android.state.settings import settings_for_measuring
from fleetrank.device_agents.android.state.waits import (
    BOOT_LIMIT_S,
    SETTLE_S,
    require_up,
    when_back,
)
from fleetrank.device_agents.contract.agent import (
    OPTION_NAMES,
    DeviceFacts,
    StopRequested,
    never_stop,
    read_fields,
)
from fleetrank.device_agents.contract.failures import failure_from_error
from fleetrank.device_agents.contract.kind import origin_of
from fleetrank.device_agents.contract.measurement import (
    Energy,
    Failure,
    Measurement,
    WorkerFacts,
    failed,
    utc_now,
)
from fleetrank.device_agents.contract.task import (
    CanaryTask,
    Execution,
    InferTask,
    MeasurePolicy,
    MeasureTask,
    OptionValue,
)
from fleetrank.device_agents.errors import (
    PermanentError,
    TransientError,
    UnfitConditionsError,
    UnsupportedError,
    UnusableDeviceError,
)
from fleetrank.device_agents.flags import Seen, is_too_few, judge
from fleetrank.device_agents.linux.worker_client import infer_in_worker
from fleetrank.device_agents.long_runs import MIN_TIME
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.vocabulary import ErrorKind, Flag, Origin, Status

_logger = logging.getLogger(__name__)


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
        virtual: the mode that an unreal phone reported at its registration; `None` for a real one.
        adb: path of the adb binary; if not given, `adb_server.find_adb` chooses it.
        adb_server: `HOST:PORT` of the adb server; if not given, `adb_text.find_address` chooses
            it.
        settle_s: how long a phone rests after its start, before a measurement.
        load_cap_mhz: the highest clock cap under load at registration; `None` if it was not seen.
        cells: of the battery, in series: a phone with two reports the voltage of one.
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
    cells: int = 1
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


BESIDE_S = 600.0
"""Time for the other steps: a push of a gigabyte over a bad cable, conditions, cleaning."""


class AndroidAgent:
    """The `android` device kind; its options are those of `PhoneOptions`."""

    def __init__(self, options: Mapping[str, OptionValue]) -> None:
        """Reads the options; the phone is not contacted before the first call."""
        self._options = read_options(options)

    def probe(self) -> DeviceFacts:
        """Describes the device."""
        phone = self.phone()
        phone.connect()
        identify(phone, self._options.hashes)
        facts = probe_phone(phone)
        refusal = why_refused(facts)
        if refusal is not None:
            raise PermanentError(refusal.reason, refusal.remedy)
        return to_device_facts(facts, adb_version=phone.server.version())

    def why_unsupported(self, execution: Execution) -> str | None:
        """Says why this device cannot execute this, or `None` when it can."""
        reason = why_unsupported(execution)
        if reason is not None:
            return reason
        name = create_program(execution.runtime).name
        if name in self._options.programs:
            return None
        return (
            f"the phone was registered without {name}; run `fleetrank devices add` with "
            f"`adb={self._options.serial}` and `tool={name}=PATH`"
        )

    def longest_s(self, task: MeasureTask) -> float:
        """The longest time of `measure`, which waits for no phone; it may run a task twice."""
        energy_s = longest_energy_s(task, self._options.max_energy_s)
        return 2 * task.limits.timeout_s + 2 * CANARY_TIMEOUT_S + energy_s + BESIDE_S

    def measure(self, task: MeasureTask, stop_requested: StopRequested = never_stop) -> Measurement:
        """Measures one repeat."""
        started = utc_now()
        origin = origin_of(self._options.virtual)
        try:
            programs = self._programs(task, stop_requested)
        except FleetError as error:
            measurement = failed(task.task_id, failure_from_error(error, "start"), origin)
        else:
            measurement = Visit(programs, self._options, task, origin).measure()
        return replace(measurement, started_utc=started, finished_utc=utc_now())

    def infer(self, task: InferTask, stop_requested: StopRequested = never_stop) -> Failure | None:
        """Runs the file on this host's CPU, which computes the same outputs."""
        return infer_in_worker(task, stop_requested)

    def measure_bare(self, task: MeasureTask) -> tuple[int, ...]:
        """Measures by plain `adb shell`; the figure that the program prints in its text."""
        programs = self._programs(task, never_stop)
        with self.held(programs.phone):
            return run_bare(programs, task)

    def _programs(self, task: MeasureTask, stop_requested: StopRequested) -> PhonePrograms:
        """Those of the phone, one of which runs the task."""
        if (reason := self.why_unsupported(task.execution)) is not None:
            raise UnsupportedError(reason, "remove this combination from the sweep")
        return PhonePrograms(
            phone=self.phone(),
            store=ProgramStore(),
            registered=self._options.programs,
            stop_requested=stop_requested,
        )

    @contextmanager
    def held(self, phone: Phone) -> Iterator[None]:
        """Locks the phone for the block, after checking that it is the registered one.

        Raises:
            TransientError: the phone does not answer, or is in use.
            PermanentError: another phone answers, or the phone rejects this computer.
        """
        phone.connect()
        identity = identify(phone, self._options.hashes)
        with phone_held(phone_lock(phone), identity.lease_name):
            yield

    def phone(self) -> Phone:
        """Returns the phone without contacting it.

        Raises:
            PermanentError: this host has no adb, or its server has no such address.
        """
        options = self._options
        adb = None if options.adb is None else find_adb(options.adb)
        return Phone(AdbServer(adb, address=options.adb_server), options.serial)


@dataclass(slots=True)
class Visit:
    """One repeat, step by step; results so far are kept if a later step fails.

    Attributes:
        stage: the current step; see `Failure.stage`.
        origin: the origin that the phone reports, or reported at registration.
        versions: versions that a row measured through adb depends on, by name.
        affinity: the cores that the kernel gave the program; `None` if it was not seen running.
        clocks: of the cores while the program ran.
        energy: of one inference; `None` if it is not counted or the phone cannot tell it.
        has_settings: false if the phone denied the settings for measuring.
        canary_before_ns: the canary's latency before the repeat; `canary_after_ns` is its latency
            after it.
    """

    programs: PhonePrograms
    options: PhoneOptions
    task: MeasureTask
    origin: Origin
    versions: dict[str, str] = field(default_factory=dict)
    stage: str = "start"
    before: PhoneConditions | None = None
    after: PhoneConditions | None = None
    canary_before_ns: int | None = None
    canary_after_ns: int | None = None
    raw_log: str | None = None
    has_settings: bool = True
    affinity: tuple[int, ...] | None = None
    clocks: RunClocks = UNSEEN
    energy: Energy | None = None

    def __post_init__(self) -> None:
        self.clocks = RunClocks(registered_cap_mhz=self.options.load_cap_mhz)

    def measure(self) -> Measurement:
        """Measures; any failure becomes a failed measurement with all results so far."""
        try:
            return self._with_circumstances(self._measure())
        except FleetError as error:
            return self._with_circumstances(self._failed(failure_from_error(error, self.stage)))

    def _measure(self) -> Measurement:
        phone, stop = self.programs.phone, self.programs.stop_requested
        # Cheap looks first: a caller that waits must not disturb what another measures there.
        require_unlocked(self.options.hashes)
        require_up(
            phone,
            limit_s=self.options.boot_limit_s,
            settle_s=self.options.settle_s,
            stop_requested=stop,
        )
        lock = phone_lock(phone)
        lock.look()
        identity = identify(phone, self.options.hashes, stop)
        self.origin = identity.origin
        self.versions["adb_version"] = phone.server.version()
        with phone_held(lock, identity.lease_name) as held:
            self.programs = replace(self.programs, require_phone=held.require)
            # Before anything is sent and the screen is lit: a phone that cools down is left alone.
            self._look()
            self.stage = "load"
            placed = self.programs.place(self.task)
            self.versions |= self.programs.version_of(self.task)
            with settings_for_measuring(phone, held.require) as self.has_settings:
                try:
                    return self._measure_awake(placed)
                finally:
                    self._clean()

    def _measure_awake(self, placed: ProgramCall) -> Measurement:
        phone, stop = self.programs.phone, self.programs.stop_requested
        self.stage = "start"
        self._look()
        canary = self.task.canary
        if canary is not None and canary.runs_before:
            self._run_canary_before(canary)
        self.stage = "timed"
        output = self._run(placed)
        program = create_program(self.task.execution.runtime)
        stricter = program.task_that_proves(self.task, output)
        if stricter is not None:
            self.task = stricter
            output = self._run(self.programs.place(stricter))
        # First: the output can be parsed later; the phone's state must be read now.
        self.after = read_phone_conditions(phone, stop)
        if self.clocks.looks:
            # At rest they say nothing about the program.
            self.after = replace(self.after, cores=self.clocks.looks[-1])
        reading = read(self.task, output)
        self.stage = "verify"
        if (alike := program.compared(self.task, output)) is not None:
            reading = replace(reading, snr_db=alike.snr_db, top1_agreement=alike.top1_agreement)
        self._count_energy(reading)
        canary_off = None
        if canary is not None and canary.runs_after:
            self.canary_after_ns = self._run_canary(canary)
            canary_off = self._deviation(canary, self.canary_after_ns)
        return self._judge(reading, canary_off)

    def _run(self, placed: ProgramCall) -> ProgramOutput:
        watch = CoreWatch(self.programs.phone, PID_FILE)
        output = self.programs.run(self.task, placed, watch)
        self.raw_log = encode_log(output)
        self.clocks = replace(self.clocks, looks=watch.looks, times_s=watch.times_s)
        self.affinity = watch.affinity
        return output

    def _count_energy(self, reading: Measurement) -> None:
        """Counts in a separate run, because looks at the power disturb what is timed."""
        battery = None if self.after is None else self.after.battery
        is_charging = battery is not None and battery.is_charging
        wants_energy = self.task.policy.energy_s > 0 and not self.task.execution.is_profiled
        if wants_energy and not is_charging:
            self.stage = "energy"
            self.energy = EnergyRun(
                programs=self.programs,
                task=self.task,
                latency_ns=latency_of(reading),
                cells=self.options.cells,
                look_s=self.options.energy_look_s,
                max_s=self.options.max_energy_s,
            ).measure()

    def _look(self) -> None:
        """Reads the conditions before the repeat; raises the errors of `why_unfit`."""
        self.before = read_phone_conditions(self.programs.phone, self.programs.stop_requested)
        if (error := why_unfit(self.before, self.options)) is not None:
            raise error

    def _clean(self) -> None:
        """Stops the program; if the phone stays unavailable, the next caller does."""
        phone = self.programs.phone

        def clean(phone: Phone) -> None:
            self.programs.require_phone()
            clean_runs(phone)

        try:
            when_back(phone, clean)
        except FleetError as error:
            _logger.warning("phone %r is not cleaned yet: %s", phone.serial, error)

    def _run_canary_before(self, canary: CanaryTask) -> None:
        """Fails if the canary deviates: the phone is not in its normal state."""
        self.canary_before_ns = self._run_canary(canary)
        if (ratio := self._deviation(canary, self.canary_before_ns)) is not None:
            raise UnfitConditionsError(
                f"the canary model took {ratio:.2f} times its registered latency",
                "let the phone rest; after a system update register it again",
            )

    def _deviation(self, canary: CanaryTask, latency_ns: int) -> float | None:
        return canary.deviation(latency_ns, self.options.min_canary_tolerance)

    def _run_canary(self, canary: CanaryTask) -> int:
        """Runs the canary; its failure is one of the phone, not of the cell."""
        self.stage = "canary"
        try:
            return self.programs.run_canary(canary)
        except (TransientError, UnusableDeviceError):
            raise
        except PermanentError as error:
            raise UnfitConditionsError(
                f"the canary model could not be measured: {error.message}", error.remedy
            ) from error

    def _judge(self, reading: Measurement, canary_off: float | None) -> Measurement:
        validity = judge_validity(
            self.before or NOTHING,
            self.after or NOTHING,
            self.options,
            samples_ns=reading.samples_ns,
            canary_off=canary_off,
            clocks=self.clocks,
        )
        measurement = replace(reading, task_id=self.task.task_id, origin=self.origin)
        flags = _flags(reading, self.task.policy, validity, has_settings=self.has_settings)
        if any(one.state is not None for one in self.task.execution.inputs):
            # No program binds an output to the memory of an input.
            flags = _in_order({*flags, Flag.CACHE_COPIED})
        is_sustained = self.task.policy.min_time_s > 0
        if is_sustained:
            measurement = replace(measurement, stop_reason=MIN_TIME)
        faults = validity.faults(is_sustained=is_sustained)
        if not faults:
            return replace(measurement, flags=flags)
        failure = Failure(
            kind=ErrorKind.UNFIT_CONDITIONS,
            message="; ".join(faults),
            remedy="it will be retried, up to max_attempts; let the phone rest between sweeps",
            is_transient=True,
            stage="timed",
        )
        return replace(measurement, status=Status.FAILED, failure=failure, flags=flags)

    def _failed(self, failure: Failure) -> Measurement:
        return failed(self.task.task_id, failure, self.origin)

    def _with_circumstances(self, measurement: Measurement) -> Measurement:
        before, after = self.before, self.after
        worker = measurement.worker or WorkerFacts()
        fell_s = self.clocks.fell_after_s(self.options.min_cap_share)
        return replace(
            measurement,
            conditions_before=to_conditions(before, self.canary_before_ns) if before else None,
            conditions_after=to_conditions(after, self.canary_after_ns) if after else None,
            worker=replace(
                worker,
                affinity=self.affinity,
                settings=tuple(sorted((*worker.settings, *self.versions.items()))),
            ),
            raw_log=self.raw_log,
            throttled_after_ns=None if fell_s is None else round(fell_s * 1e9),
            energy=self.energy,
        )


def _flags(
    reading: Measurement, policy: MeasurePolicy, validity: Validity, *, has_settings: bool
) -> tuple[Flag, ...]:
    """Flags of samples and phone; clocks are judged by their caps, not by the current clock."""
    summary = reading.summary
    if reading.samples_ns or summary is None:
        found = set(judge(Seen(samples_ns=reading.samples_ns), policy))
    else:
        count, mean_ns = summary.count, summary.mean_ns or summary.latency_ns
        is_few = count is not None and is_too_few(count, count * mean_ns, policy)
        found = {Flag.TOO_FEW} if is_few else set()
    if not has_settings:
        found.add(Flag.SETTINGS_NOT_APPLIED)
    return _in_order(found.union(validity.flags))


def _in_order(flags: Set[Flag]) -> tuple[Flag, ...]:
    """Flags in the order of the vocabulary."""
    return tuple(flag for flag in Flag if flag in flags)
