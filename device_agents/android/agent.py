"""Measures on one Android phone over adb."""

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from fleetrank.device_agents.android.adb.adb_server import AdbServer, find_adb
from fleetrank.device_agents.android.adb.phone import Phone
from fleetrank.device_agents.android.options import read_options
from fleetrank.device_agents.android.phone_lease import phone_lease
from fleetrank.device_agents.android.programs.program import CANARY_TIMEOUT_S, Programs
from fleetrank.device_agents.android.programs.tool_store import ToolStore
from fleetrank.device_agents.android.runners.program_registry import (
    create_phone_runner,
    why_unsupported,
)
from fleetrank.device_agents.android.state.identity import identify
from fleetrank.device_agents.android.state.probe import probe_phone
from fleetrank.device_agents.android.state.probe_text import to_device_facts, why_refused
from fleetrank.device_agents.android.visit import Visit
from fleetrank.device_agents.contract.agent import StopRequested, never_stop
from fleetrank.device_agents.contract.device_facts import DeviceFacts
from fleetrank.device_agents.contract.failures import failure_from_error
from fleetrank.device_agents.contract.measurement import Failure, Measurement, failed, utc_now
from fleetrank.device_agents.contract.task import Execution, InferTask, MeasureTask, OptionValue
from fleetrank.device_agents.contract.vocabulary import Origin
from fleetrank.device_agents.errors import AgentError, PermanentError
from fleetrank.device_agents.host.worker_client import infer_in_worker

BESIDE_S = 600.0
"""For the rest: pushing a gigabyte over a bad cable, asking for conditions, cleaning."""


class AndroidAgent:
    """The `android` device kind; its options are those of `PhoneOptions` and `PhoneRules`."""

    def __init__(self, options: Mapping[str, OptionValue]) -> None:
        """Reads the options; no phone is asked before the first call."""
        self._options, self._rules = read_options(options)

    def probe(self) -> DeviceFacts:
        """See `Agent`."""
        phone = self.phone()
        phone.connect()
        identify(phone, self._options.serial_hash)
        facts = probe_phone(phone)
        refusal = why_refused(facts)
        if refusal is not None:
            raise PermanentError(refusal.reason, refusal.remedy)
        return to_device_facts(facts, adb_version=phone.server.version())

    def why_unsupported(self, execution: Execution) -> str | None:
        """See `Agent`."""
        reason = why_unsupported(execution)
        if reason is not None:
            return reason
        tool = create_phone_runner(execution.runtime).tool
        if tool in self._options.tools:
            return None
        return (
            f"the phone was registered without {tool}: `fleetrank devices add --adb "
            f"{shlex.quote(self._options.serial)} --tool {tool}=PATH`"
        )

    def longest_s(self, task: MeasureTask) -> float:
        """See `Agent`: the phone may have to start, to settle and to cool down first."""
        waits_s = self._options.boot_limit_s + self._options.settle_s + self._rules.max_wait_s
        return waits_s + task.timeout_s + 2 * CANARY_TIMEOUT_S + BESIDE_S

    def measure(self, task: MeasureTask, stop_requested: StopRequested = never_stop) -> Measurement:
        """See `Agent`."""
        started = utc_now()
        origin = Origin.MEASURED if self._options.virtual is None else Origin.VIRTUAL
        try:
            programs = Programs(
                phone=self.phone(),
                store=ToolStore(),
                tools=self._options.tools,
                stop_requested=stop_requested,
            )
        except AgentError as error:
            measurement = failed(task.task_id, failure_from_error(error, "start"), origin)
        else:
            visit = Visit(programs, self._options, self._rules, task, origin)
            measurement = visit.measure()
        return replace(measurement, started_utc=started, finished_utc=utc_now())

    def infer(self, task: InferTask) -> Failure | None:
        """See `Agent`; the file is run by this host's CPU, which computes the same."""
        return infer_in_worker(task)

    @contextmanager
    def held(self, phone: Phone) -> Iterator[None]:
        """Holds the phone for the block, once it has shown to be the registered one.

        Raises:
            TransientError: it does not answer, or is in use.
            PermanentError: it is another phone, or refuses this computer.
        """
        phone.connect()
        identity = identify(phone, self._options.serial_hash)
        with phone_lease(identity.serial_hash):
            yield

    def phone(self) -> Phone:
        """The phone, not asked yet.

        Raises:
            PermanentError: there is no adb on this host.
        """
        options = self._options
        adb = None if options.adb is None else find_adb(options.adb)
        return Phone(AdbServer(adb, options.adb_port), options.serial)
