"""Commands that compute wait until no measurement runs on this host."""

import sys
from contextlib import AbstractContextManager
from pathlib import Path

from fleetrank.foundation.lease import host_lease


def host_turn(command: str) -> AbstractContextManager[bool]:
    """Holds the host's lease while a command works; explains a long wait; Ctrl-C ends the wait."""
    return host_lease(
        f"`fleetrank {command}`", on_wait=lambda message: print(message, file=sys.stderr)
    )


def reading_turn(command: str, results: Path, *sweeps: str | None) -> AbstractContextManager[bool]:
    """As `host_turn`, for commands that read results; fails at once if there are no results.

    Args:
        command: the user's command.
        results: the results folder.
        sweeps: sweeps that must have rows; `None` or empty means any sweep.

    Raises:
        NoDataError: there are no measurements, or the sweep does not exist.
    """
    from fleetrank.analysis.stored.load import stored_parts

    for sweep in sweeps or (None,):
        stored_parts(results, sweep=sweep)
    return host_turn(command)
