"""Finds the file to push to a virtual phone instead of a real phone's program."""

from pathlib import Path

from fleetrank.device_agents.errors import UnsupportedError

_FOLDER = Path(__file__).parents[1] / "standins"


def standin_path(tool: str) -> Path:
    """Returns the stand-in, an executable script that only a virtual phone can run.

    Raises:
        UnsupportedError: no stand-in of that name exists.
    """
    known = {path.name: path for path in sorted(_FOLDER.iterdir())}
    if tool not in known:
        raise UnsupportedError(
            f"virtual phones have no stand-in for '{tool}'", f"use one of {', '.join(known)}"
        )
    return known[tool]
