"""Commands that compute wait for what measures on this host."""

import sys
from contextlib import AbstractContextManager

from device_agents.host_lease import host_lease


def host_turn(command: str) -> AbstractContextManager[bool]:
    """The host's lease while a command works; a long wait is explained, and Ctrl-C ends it."""
    return host_lease(
        f"`fleetrank {command}`", on_wait=lambda message: print(message, file=sys.stderr)
    )
