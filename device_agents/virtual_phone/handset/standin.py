"""Finds the file to push to a virtual phone instead of a real phone's program."""

from pathlib import Path

from fleetrank.device_agents.android.options import TOOLS
from fleetrank.device_agents.errors import UnsupportedError

_FOLDER = Path(__file__).parents[1] / "standins"


def standin_path(tool: str) -> Path:
    """Returns the stand-in, an executable script that only a virtual phone can run.

    Raises:
        UnsupportedError: no stand-in of that name exists.
    """
    if tool not in TOOLS:
        raise UnsupportedError(
            f"virtual phones have no stand-in for '{tool}'", f"use one of {', '.join(TOOLS)}"
        )
    return _FOLDER / tool
