"""What a host says about its NVIDIA GPUs without measuring on one."""

import shutil
import subprocess
from collections.abc import Sequence

from fleetrank.device_agents.contract.gpu_backends import GPU_RUNTIMES
from fleetrank.device_agents.contract.kind import DeviceOptions, HostCheck
from fleetrank.device_agents.cuda.nvml import open_nvml
from fleetrank.device_agents.runtimes import runner
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.vocabulary import Runtime

_QUERY = ("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
_QUERY_TIMEOUT_S = 10


def default_backend(runtime: Runtime) -> str:
    """The backend on a GPU if a sweep names none."""
    known = GPU_RUNTIMES.get(runtime)
    return runner.default_backend(runtime) if known is None else known.default_backend


def seen_here() -> tuple[str, ...] | None:
    """UUIDs of this host's GPUs and MIG instances; `None` if no NVIDIA driver answers."""
    try:
        found = open_nvml().find()
    except FleetError:
        return None  # no driver, or no binding for it
    return tuple(gpu.uuid for gpu in found.gpus if not gpu.is_divided)


def why_absent(options: DeviceOptions, seen: tuple[str, ...] | None) -> str | None:
    """What a host lacks for this device, and the remedy; `None` if the GPU may be there."""
    wanted = str(options.get("uuid", ""))
    if any(uuid.startswith(wanted) for uuid in seen or ()):
        return None
    return "which has no such GPU: compare `nvidia-smi -L` there with the device's file"


def judge_driver(driver_line: str | None, *, has_driver_files: bool) -> HostCheck | None:
    """Checks the NVIDIA driver by the output of `nvidia-smi`; `None` on a host without a driver."""
    if driver_line is not None:
        return HostCheck(name="gpu", message=driver_line)
    if has_driver_files:
        return HostCheck(
            name="gpu",
            message="nvidia-smi is installed but does not respond",
            remedy="check the driver with `nvidia-smi`; after a driver update, reboot",
        )
    return None


def check_host() -> Sequence[HostCheck]:
    """The driver and the first GPU, as `nvidia-smi` names them."""
    path = shutil.which(_QUERY[0])
    found = judge_driver(_first_line(path), has_driver_files=path is not None)
    return () if found is None else (found,)


def _first_line(path: str | None) -> str | None:
    """The first line that `nvidia-smi` prints; `None` if it is missing, fails or hangs."""
    if path is None:
        return None
    try:
        done = subprocess.run(
            [path, *_QUERY[1:]],
            capture_output=True,
            text=True,
            timeout=_QUERY_TIMEOUT_S,
            check=True,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired, OSError):
        return None
    return next(iter(done.stdout.splitlines()), None)
