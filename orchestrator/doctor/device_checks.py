"""Checks the access to devices other than this CPU: phones over adb, NVIDIA GPUs."""

import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from fleetrank.device_agents.android.adb.adb_server import ADB_VARIABLE, AdbServer, find_adb
from fleetrank.device_agents.errors import MissingLibraryError
from fleetrank.foundation.errors import FleetError
from fleetrank.orchestrator.doctor.finding import Finding, ok, warning

_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundAdb:
    """One adb binary; `version` as in `AdbServer.version`."""

    path: Path
    version: str


def _first_line(command: list[str]) -> str | None:
    """The first line that a program prints; `None` if it is missing, fails or hangs."""
    path = shutil.which(command[0])
    if path is None:
        return None
    try:
        done = subprocess.run(
            [path, *command[1:]], capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired, OSError):
        return None
    return next(iter(done.stdout.splitlines()), None)


def judge_adb(used: FoundAdb, on_path: FoundAdb | None) -> Finding:
    """Compares the adb used for measuring with the adb on PATH."""
    message = f"{used.version} at {used.path}"
    if on_path is None or on_path.version == used.version:
        return ok("adb", message)
    return warning(
        "adb",
        f"{message}, but PATH has {on_path.version} at {on_path.path}; both share one server, "
        "started by the first one used",
        f"use only one: set {ADB_VARIABLE}={shlex.quote(str(on_path.path))}, or put the "
        "other first on PATH",
    )


def check_adb() -> Finding:
    """Finds adb in the same way as measuring and reads its version; starts no server."""
    try:
        adb = find_adb()
        used = FoundAdb(path=adb, version=AdbServer(adb).version())
    except MissingLibraryError as missing:
        return ok("adb", f"{missing.message} (only phones need it)")
    except FleetError as error:
        return warning("adb", error.message, error.remedy)
    return judge_adb(used, _adb_on_path())


def _adb_on_path() -> FoundAdb | None:
    path = shutil.which("adb")
    if path is None:
        return None
    try:
        return FoundAdb(path=Path(path), version=AdbServer(Path(path)).version())
    except FleetError:
        return None  # an adb that does not run cannot start a server


def judge_gpu(driver_line: str | None, *, has_driver_files: bool) -> Finding:
    """Checks the NVIDIA driver by the output of `nvidia-smi`, if it is installed."""
    if driver_line is not None:
        return ok("gpu", driver_line)
    if has_driver_files:
        return warning(
            "gpu",
            "nvidia-smi is installed but does not respond",
            "check the driver with `nvidia-smi`; after a driver update, reboot",
        )
    return ok("gpu", "no NVIDIA driver (only GPU devices need it)")


def check_devices() -> list[Finding]:
    """Reads the versions of adb and the NVIDIA driver."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return [
        check_adb(),
        judge_gpu(_first_line(query), has_driver_files=shutil.which("nvidia-smi") is not None),
    ]
