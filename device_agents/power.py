"""The power of a device, which a command of a lab switches off and on again."""

import shutil
from dataclasses import dataclass
from typing import Annotated

from fleetrank.device_agents.contract.task import Seconds
from fleetrank.device_agents.errors import PermanentError
from fleetrank.device_agents.hold import LabCommand, cannot_start, run_command
from fleetrank.foundation.user_file import NO_OTHER_KEYS, Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """How a device is switched off and on; the key `power` of a device file."""

    __pydantic_config__ = NO_OTHER_KEYS

    cycle: Annotated[LabCommand, Key("program and arguments that switch it off and on again")]
    limit_s: Annotated[Seconds, Key("after this time the command is ended, and has failed")] = 60.0

    def require(self) -> None:
        """Raises `PermanentError` if the program is not on this host."""
        if shutil.which(self.cycle[0]) is None:
            raise cannot_start(self.cycle, "power", "no such program")

    def switch(self) -> str | None:
        """Switches it off and on; returns why that failed, with the command's last line."""
        try:
            return run_command(self.cycle, "power", timeout_s=self.limit_s)[0]
        except PermanentError as error:
            return f"{error.message}; {error.remedy}"
