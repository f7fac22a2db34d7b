"""A folder for the embedded Ray that no other user of this host can enter.

Ray makes its folder of sessions, sockets and logs with mode 0777, independent of the umask. Only
the parent folder keeps other users out.
"""

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fleetrank.orchestrator.errors import OrchestratorError

_PREFIX = "fleetrank-ray-"
_OWN_MODE = 0o700
_MAX_BYTES = 40
"""Longest path given to Ray, so that its socket paths keep within the 107 bytes of Linux:
`/session_2026-11-22_01-36-51_517459_4194304/sockets/plasma_store` has 64; three are spare."""
_INSIDE = "r"
"""Ray changes the mode of the folder it is given, so it gets a folder inside ours."""


def make_ray_folder() -> Path:
    """Makes a folder of mode 0700 with a folder for Ray inside; the caller removes it.

    Raises:
        OrchestratorError: no folder for temporary files is safe and has a short enough path.
    """
    for place in _places():
        folder = place / f"{_PREFIX}{'x' * 8}" / _INSIDE
        if len(os.fsencode(folder)) > _MAX_BYTES or not _is_safe(place):
            continue
        try:
            # A new name, and an error if it exists, so that no other user can have made it.
            made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        except OSError:
            continue
        made.chmod(_OWN_MODE)
        return made
    raise OrchestratorError(
        "no temporary folder keeps Ray's files safe from other users",
        "give /tmp to root with mode 1777, or set TMPDIR to a folder of yours with a path of at "
        f"most {_MAX_BYTES - len('/fleetrank-ray-xxxxxxxx/r')} bytes, or use --inline",
    )


def inside(folder: Path) -> Path:
    """Returns the folder for Ray's files inside a folder of `make_ray_folder`."""
    return folder / _INSIDE


def _places() -> Iterator[Path]:
    """Folders for temporary files in Ray's order; disk before the memory of a runtime folder."""
    names = ("RAY_TMPDIR", "TMPDIR")
    given = [os.environ.get(name) for name in names]
    for place in (*given, "/tmp", os.environ.get("XDG_RUNTIME_DIR")):  # noqa: S108 - not used as such
        if place and Path(place).is_dir():
            yield Path(place).resolve()


def _is_safe(place: Path) -> bool:
    """Whether no other user can rename or replace our files in a folder."""
    return all(_keeps_names(folder) for folder in (place, *place.parents))


def _keeps_names(folder: Path) -> bool:
    """Whether the folder is root's or ours, and is not writable by others or is sticky."""
    found = folder.stat()
    is_open = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return found.st_uid in (0, os.getuid()) and not (is_open and not found.st_mode & stat.S_ISVTX)
