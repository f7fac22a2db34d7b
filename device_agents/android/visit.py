"""One repeat on one phone, step by step. Results so far are kept if a later step fails."""

import logging
from dataclasses import dataclass, field, replace

from fleetrank.device_agents.android.execution.program_run import PhonePrograms, clean_runs, read
from fleetrank.device_agents.android.execution.raw_log import encode_log, to_measurement
from fleetrank.device_agents.android.options import PhoneOptions
from fleetrank.device_agents.android.programs.phone_program import ProgramCall, ProgramReading
from fleetrank.device_agents.android.state.fitness import (
    CanaryReading,
    PhoneRules,
    Validity,
    is_canary_off,
    judge_validity,
)
from fleetrank.device_agents.android.state.identity import identify, phone_lease
from fleetrank.device_agents.android.state.phone_conditions import (
    PhoneConditions,
    read_phone_conditions,
    to_conditions,
)
from fleetrank.device_agents.android.state.settings import settings_for_measuring
from fleetrank.device_agents.android.state.waits import (
    COME_BACK_LIMIT_S,
    wait_until_booted,
    wait_until_ready,
)
from fleetrank.device_agents.contract.failures import failure_from_error
from fleetrank.device_agents.contract.measurement import Failure, Measurement, WorkerFacts, failed
from fleetrank.device_agents.contract.task import CanaryTask, MeasurePolicy, MeasureTask
from fleetrank.device_agents.errors import (
    PermanentError,
    TransientError,
    UnfitConditionsError,
    UnusableDeviceError,
)
from fleetrank.device_agents.timing.flags import Seen, judge
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
        canary_before_ns: the canary's latency before the repeat; `canary_after_ns` is its latency
            after it.
    """

    programs: PhonePrograms
    options: PhoneOptions
    rules: PhoneRules
    task: MeasureTask
    origin: Origin
    versions: dict[str, str] = field(default_factory=dict)
    stage: str = "start"
    before: PhoneConditions | None = None
    after: PhoneConditions | None = None
    canary_before_ns: int | None = None
    canary_after_ns: int | None = None
    raw_log: str | None = None

    def measure(self) -> Measurement:
        """Measures; any failure becomes a failed measurement with all results so far."""
        try:
            return self._with_circumstances(self._measure())
        except FleetError as error:
            return self._with_circumstances(self._failed(failure_from_error(error, self.stage)))

    def _measure(self) -> Measurement:
        phone, stop = self.programs.phone, self.programs.stop_requested
        wait_until_booted(
            phone,
            limit_s=self.options.boot_limit_s,
            settle_s=self.options.settle_s,
            stop_requested=stop,
        )
        identity = identify(phone, self.options.serial_hash, stop)
        self.origin = identity.origin
        self.versions["adb_version"] = phone.server.version()
        with phone_lease(identity.serial_hash):
            self.stage = "load"
            placed = self.programs.place(self.task)
            self.versions |= self.programs.version_of(self.task)
            with settings_for_measuring(phone):
                try:
                    return self._measure_awake(placed)
                finally:
                    self._clean()

    def _measure_awake(self, placed: ProgramCall) -> Measurement:
        phone, stop = self.programs.phone, self.programs.stop_requested
        self.stage = "start"
        self.before = wait_until_ready(
            lambda: read_phone_conditions(phone, stop), self.rules, stop_requested=stop
        )
        canary = self.task.canary
        if canary is not None and canary.runs_before:
            self._run_canary_before(canary)
        self.stage = "timed"
        output = self.programs.run(self.task, placed)
        self.raw_log = encode_log(output)
        # First: the output can be parsed again later; the phone's state must be read now.
        self.after = read_phone_conditions(phone, stop)
        reading = read(self.task, output)
        canary_after = None
        if canary is not None and canary.runs_after:
            self.canary_after_ns, canary_after = self._run_canary(canary)
        return self._judge(reading, self.before, self.after, canary_after)

    def _clean(self) -> None:
        """Stops the program, also on a phone that was lost for a moment.

        If the phone stays unavailable, the next caller cleans it.
        """
        phone = self.programs.phone
        try:
            wait_until_booted(phone, limit_s=COME_BACK_LIMIT_S, settle_s=0.0)
            clean_runs(phone)
        except FleetError as error:
            _logger.warning("phone %r is not cleaned yet: %s", phone.serial, error)

    def _run_canary_before(self, canary: CanaryTask) -> None:
        """Fails if the canary deviates: the phone is not in its normal state."""
        self.canary_before_ns, seen = self._run_canary(canary)
        if is_canary_off(seen, self.rules):
            raise UnfitConditionsError(
                f"the canary model took {seen.ratio:.2f} times its registered latency",
                "let the phone rest; after a system update register it again",
            )

    def _run_canary(self, canary: CanaryTask) -> tuple[int, CanaryReading]:
        """Runs the canary. Its failure says something about the phone, not about the cell."""
        self.stage = "canary"
        try:
            return self.programs.run_canary(canary)
        except (TransientError, UnusableDeviceError):
            raise
        except PermanentError as error:
            raise UnfitConditionsError(
                f"the canary model could not be measured: {error.message}", error.remedy
            ) from error

    def _judge(
        self,
        reading: ProgramReading,
        before: PhoneConditions,
        after: PhoneConditions,
        canary: CanaryReading | None,
    ) -> Measurement:
        validity = judge_validity(
            before, after, self.rules, samples_ns=reading.samples_ns, canary=canary
        )
        measurement = to_measurement(reading, task_id=self.task.task_id, origin=self.origin)
        flags = _flags(reading, self.task.policy, validity)
        if validity.is_valid:
            return replace(measurement, flags=flags)
        failure = Failure(
            kind=ErrorKind.UNFIT_CONDITIONS,
            message="; ".join(validity.reasons),
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
        return replace(
            measurement,
            conditions_before=to_conditions(before, self.canary_before_ns) if before else None,
            conditions_after=to_conditions(after, self.canary_after_ns) if after else None,
            worker=replace(
                worker,
                affinity=self.task.execution.affinity,
                settings=tuple(sorted((*worker.settings, *self.versions.items()))),
            ),
            raw_log=self.raw_log,
        )


def _flags(reading: ProgramReading, policy: MeasurePolicy, validity: Validity) -> tuple[Flag, ...]:
    """Flags of samples and phone; clocks are judged by their caps, not by the current clock."""
    summary = reading.summary
    if reading.samples_ns or summary is None:
        seen = Seen(
            samples_ns=reading.samples_ns,
            is_warmup_stable=True,
            involuntary_switches=None,
            niceness=None,
            before=None,
            after=None,
        )
        found = set(judge(seen, policy))
    else:
        is_few = summary.count is not None and summary.count < policy.min_runs
        found = {Flag.TOO_FEW} if is_few else set()
    return tuple(flag for flag in Flag if flag in found or flag in validity.flags)
