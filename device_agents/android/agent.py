"""Measures on one Android phone: finds it fit, runs one program, judges what came back."""

from collections.abc import Mapping

from device_agents.android.identity import identify
from device_agents.android.options import read_options
from device_agents.android.probe import probe_phone
from device_agents.android.probe_text import to_device_facts, why_refused
from device_agents.android.runners.registry import create_phone_runner, why_unsupported
from device_agents.errors import PermanentError
from device_agents.hosted import infer_in_worker
from device_agents.types import (
    DeviceFacts,
    Execution,
    Failure,
    InferTask,
    OptionValue,
)


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
