"""Commands that compute wait for what measures on this host."""

import sys
from contextlib import AbstractContextManager
from pathlib import Path

from fleetrank.device_agents.host.host_lease import host_lease


def host_turn(command: str) -> AbstractContextManager[bool]:
    """The host's lease while a command works; a long wait is explained, and Ctrl-C ends it."""
    return host_lease(
        f"`fleetrank {command}`", on_wait=lambda message: print(message, file=sys.stderr)
    )


def reading_turn(command: str, results: Path, *sweeps: str | None) -> AbstractContextManager[bool]:
    """As `host_turn`, for what reads results; nobody waits to hear that there are none.

    Args:
        command: of the user.
        results: the results folder.
        sweeps: those that must have rows; `None`, or none, for any at all.

    Raises:
        NoDataError: there is no measurement, or no such sweep.
    """
    from fleetrank.analysis.stored.load import stored_parts

    for sweep in sweeps or (None,):
        stored_parts(results, sweep=sweep)
    return host_turn(command)
