"""Checks that this host has one usable adb."""

import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetrank.device_agents.android.adb.adb_server import ADB_VARIABLE, AdbServer, find_adb
from fleetrank.device_agents.contract.kind import HostCheck
from fleetrank.device_agents.errors import MissingLibraryError
from fleetrank.foundation.errors import FleetError


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundAdb:
    """One adb binary; `version` as in `AdbServer.version`."""

    path: Path
    version: str


def judge_adb(used: FoundAdb, on_path: FoundAdb | None) -> HostCheck:
    """Compares the adb used for measuring with the adb on PATH."""
    message = f"{used.version} at {used.path}"
    if on_path is None or on_path.version == used.version:
        return HostCheck(name="adb", message=message)
    return HostCheck(
        name="adb",
        message=f"{message}, but PATH has {on_path.version} at {on_path.path}; both share one "
        "server, started by the first one used",
        remedy=f"use only one: set {ADB_VARIABLE}={shlex.quote(str(on_path.path))}, or put the "
        "other first on PATH",
    )


def check_adb() -> Sequence[HostCheck]:
    """Finds adb in the same way as measuring and reads its version; starts no server."""
    try:
        adb = find_adb()
        used = FoundAdb(path=adb, version=AdbServer(adb).version())
    except MissingLibraryError as missing:
        return (HostCheck(name="adb", message=f"{missing.message} (only phones need it)"),)
    except FleetError as error:
        return (HostCheck(name="adb", message=error.message, remedy=error.remedy),)
    return (judge_adb(used, _adb_on_path()),)


def _adb_on_path() -> FoundAdb | None:
    path = shutil.which("adb")
    if path is None:
        return None
    try:
        return FoundAdb(path=Path(path), version=AdbServer(Path(path)).version())
    except FleetError:
        return None  # an adb that does not run cannot start a server
