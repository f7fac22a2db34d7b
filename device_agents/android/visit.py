"""One repeat on one phone, step by step. Results so far are kept if a later step fails."""

import logging
from collections.abc import Set
from dataclasses import dataclass, field, replace

from fleetrank.device_agents.android.execution.energy_run import CoreWatch, EnergyRun
from fleetrank.device_agents.android.execution.program_run import (
    PID_FILE,
    PhonePrograms,
    clean_runs,
    encode_log,
    latency_of,
    read,
)
from fleetrank.device_agents.android.options import PhoneOptions
from fleetrank.device_agents.android.phone import Phone
from fleetrank.device_agents.android.programs.phone_program import (
    ProgramCall,
    ProgramOutput,
)
from fleetrank.device_agents.android.state.fitness import (
    NOTHING,
    PhoneConditions,
    Validity,
    judge_validity,
    read_phone_conditions,
    require_up,
    settings_for_measuring,
    to_conditions,
    when_back,
    why_unfit,
)
from fleetrank.device_agents.android.state.identity import identify
from fleetrank.device_agents.android.state.phone_lock import (
    phone_held,
    phone_lock,
    require_unlocked,
)
from fleetrank.device_agents.android.state.power_text import UNSEEN, RunClocks
from fleetrank.device_agents.contract.measurement import (
    Energy,
    Failure,
    Measurement,
    WorkerFacts,
    failed,
    failure_from_error,
)
from fleetrank.device_agents.contract.task import CanaryTask, MeasurePolicy, MeasureTask
from fleetrank.device_agents.errors import (
    PermanentError,
    TransientError,
    UnfitConditionsError,
    UnusableDeviceError,
)
from fleetrank.device_agents.timing import MIN_TIME, Seen, is_too_few, judge
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.vocabulary import ErrorKind, Flag, Origin, Status

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Visit:
    """The state of one repeat.

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
        program = self.programs.program_of(self.task)
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
        wants_energy = self.task.policy.energy_s > 0 and not self.task.is_profiled
        if wants_energy and not is_charging:
            self.stage = "energy"
            self.energy = EnergyRun(
                programs=self.programs,
                task=self.task,
                latency_ns=latency_of(reading),
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
