"""Which devices other than this CPU could be reached: phones over adb, NVIDIA GPUs."""

import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from fleetrank.device_agents.android.adb.adb_server import ADB_VARIABLE, AdbServer, find_adb
from fleetrank.device_agents.errors import AgentError, MissingLibraryError
from fleetrank.orchestrator.doctor.finding import Finding, ok, warning

_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundAdb:
    """One adb binary; `version` as in `AdbServer.version`."""

    path: Path
    version: str


def _first_line(command: list[str]) -> str | None:
    """First line a program prints; `None` when it is missing, fails or hangs."""
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
    """Judges the adb that measuring would use, by the one a person's own commands would use."""
    message = f"{used.version} at {used.path}"
    if on_path is None or on_path.version == used.version:
        return ok("adb", message)
    return warning(
        "adb",
        f"{message}, but PATH has {on_path.version} at {on_path.path}; the server both share is "
        "that of whichever comes first",
        f"use one everywhere: set {ADB_VARIABLE}={shlex.quote(str(on_path.path))}, or put the "
        "other first on PATH",
    )


def check_adb() -> Finding:
    """Finds adb as measuring does, and asks it for its version; starts no server."""
    try:
        adb = find_adb()
        used = FoundAdb(path=adb, version=AdbServer(adb).version())
    except MissingLibraryError as missing:
        return ok("adb", f"{missing.message} (only phones need it)")
    except AgentError as error:
        return warning("adb", error.message, error.remedy)
    return judge_adb(used, _adb_on_path())


def _adb_on_path() -> FoundAdb | None:
    path = shutil.which("adb")
    if path is None:
        return None
    try:
        return FoundAdb(path=Path(path), version=AdbServer(Path(path)).version())
    except AgentError:
        return None  # one that does not run starts no server either


def judge_gpu(driver_line: str | None, *, has_driver_files: bool) -> Finding:
    """Judges the NVIDIA driver by what `nvidia-smi` says, if it is there at all."""
    if driver_line is not None:
        return ok("gpu", driver_line)
    if has_driver_files:
        return warning(
            "gpu",
            "nvidia-smi is installed but does not answer",
            "check the driver with `nvidia-smi`; a reboot is needed after a driver update",
        )
    return ok("gpu", "no NVIDIA driver (only GPU devices need it)")


def check_devices() -> list[Finding]:
    """Asks adb and the NVIDIA driver for their versions."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return [
        check_adb(),
        judge_gpu(_first_line(query), has_driver_files=shutil.which("nvidia-smi") is not None),
    ]
