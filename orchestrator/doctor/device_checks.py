"""Which devices other than this CPU could be reached: phones over adb, NVIDIA GPUs."""

import shutil
import subprocess

from orchestrator.doctor.finding import Finding, ok, warning

_TIMEOUT_S = 10


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


def judge_adb(version_line: str | None) -> Finding:
    """Judges adb by the first line of `adb version`; only phones need it."""
    if version_line is None:
        return ok("adb", "not found (only phones need it)")
    return ok("adb", version_line)


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
        judge_adb(_first_line(["adb", "version"])),
        judge_gpu(_first_line(query), has_driver_files=shutil.which("nvidia-smi") is not None),
    ]
