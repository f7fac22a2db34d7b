"""Which file to push to a virtual phone in place of a real phone's program."""

from pathlib import Path

from fleetrank.device_agents.android.options import TOOLS
from fleetrank.device_agents.errors import UnsupportedError

_FOLDER = Path(__file__).parents[1] / "standins"


def standin_path(tool: str) -> Path:
    """Returns the stand-in, an executable script that a virtual phone alone can run.

    Raises:
        UnsupportedError: there is none of that name.
    """
    if tool not in TOOLS:
        raise UnsupportedError(
            f"virtual phones have no stand-in for '{tool}'", f"use one of {', '.join(TOOLS)}"
        )
    return _FOLDER / tool
