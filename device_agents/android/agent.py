"""Measures on one Android phone over adb."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from fleetrank.device_agents.android.adb_server import AdbServer, find_adb
from fleetrank.device_agents.android.execution.energy_run import longest_energy_s
from fleetrank.device_agents.android.execution.program_run import CANARY_TIMEOUT_S, PhonePrograms
from fleetrank.device_agents.android.execution.storage import ProgramStore
from fleetrank.device_agents.android.options import read_options
from fleetrank.device_agents.android.phone import Phone
from fleetrank.device_agents.android.programs.phone_program import create_program, why_unsupported
from fleetrank.device_agents.android.state.identity import (
    identify,
    probe_phone,
    to_device_facts,
    why_refused,
)
from fleetrank.device_agents.android.state.phone_lock import phone_held, phone_lock
from fleetrank.device_agents.android.visit import Visit
from fleetrank.device_agents.contract.agent import DeviceFacts, StopRequested, never_stop
from fleetrank.device_agents.contract.kind import origin_of
from fleetrank.device_agents.contract.measurement import (
    Failure,
    Measurement,
    failed,
    failure_from_error,
    utc_now,
)
from fleetrank.device_agents.contract.task import Execution, InferTask, MeasureTask, OptionValue
from fleetrank.device_agents.errors import PermanentError
from fleetrank.device_agents.host.worker_client import infer_in_worker
from fleetrank.foundation.errors import FleetError

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
        reason = why_unsupported(execution, self._options.programs)
        if reason is not None:
            return reason
        name = create_program(execution.runtime, self._options.programs).name
        if name in self._options.programs:
            return None
        return (
            f"the phone was registered without {name}; run `fleetrank devices add` with "
            f"`adb={self._options.serial}` and `tool={name}=PATH`"
        )

    def longest_s(self, task: MeasureTask) -> float:
        """The longest time of `measure`, which waits for no phone; it may run a task twice."""
        energy_s = longest_energy_s(task, self._options.max_energy_s)
        return 2 * task.timeout_s + 2 * CANARY_TIMEOUT_S + energy_s + BESIDE_S

    def measure(self, task: MeasureTask, stop_requested: StopRequested = never_stop) -> Measurement:
        """Measures one repeat."""
        started = utc_now()
        origin = origin_of(self._options.virtual)
        try:
            programs = PhonePrograms(
                phone=self.phone(),
                store=ProgramStore(),
                registered=self._options.programs,
                stop_requested=stop_requested,
            )
        except FleetError as error:
            measurement = failed(task.task_id, failure_from_error(error, "start"), origin)
        else:
            measurement = Visit(programs, self._options, task, origin).measure()
        return replace(measurement, started_utc=started, finished_utc=utc_now())

    def infer(self, task: InferTask, stop_requested: StopRequested = never_stop) -> Failure | None:
        """Runs the file on this host's CPU, which computes the same outputs."""
        return infer_in_worker(task, stop_requested)

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
