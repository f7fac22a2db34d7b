"""Measures on one Android phone: finds it fit, runs one program, judges what came back."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from device_agents.agent import StopRequested, never_stop
from device_agents.android.adb_server import AdbServer
from device_agents.android.boot import wait_until_booted
from device_agents.android.canary import CanaryOff, run_canary
from device_agents.android.conditions import (
    PhoneConditions,
    read_phone_conditions,
    to_conditions,
)
from device_agents.android.cooling import wait_until_ready
from device_agents.android.identity import Identity, identify
from device_agents.android.lease import phone_lease
from device_agents.android.options import read_options
from device_agents.android.outcome import Seen, failed, measured
from device_agents.android.phone import Phone
from device_agents.android.probe import probe_phone
from device_agents.android.probe_text import to_device_facts, why_refused
from device_agents.android.raw_log import format_log
from device_agents.android.runners.registry import create_phone_runner, why_unsupported
from device_agents.android.runners.runner import ToolOutput
from device_agents.android.settings import settings_for_measuring
from device_agents.android.tool_cache import ToolCache
from device_agents.android.tool_call import RUN_FOLDER, run_tool
from device_agents.android.tool_store import ToolStore
from device_agents.android.tools import Tool
from device_agents.errors import AgentError, PermanentError, UnsupportedError
from device_agents.hosted import infer_in_worker
from device_agents.types import (
    CanaryTask,
    DeviceFacts,
    Execution,
    Failure,
    InferTask,
    Measurement,
    MeasureTask,
    OptionValue,
)
from device_agents.vocabulary import Origin

class AndroidAgent:
    """The `android` device kind; its options are those of `PhoneOptions` and `PhoneRules`."""

    def __init__(self, options: Mapping[str, OptionValue]) -> None:
        self._options, self._rules = read_options(options)

    def probe(self) -> DeviceFacts:
        """See `Agent`."""
        phone = self._phone()
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
        if tool not in self._options.tools:
            return (
                f"the phone was registered without {tool}: `fleetrank devices add --adb "
                f"{self._options.serial} --tool {tool}=PATH`"
            )
        return None

    def infer(self, task: InferTask) -> Failure | None:
        """See `Agent`; the file is run by this host's CPU."""
        return infer_in_worker(task)
