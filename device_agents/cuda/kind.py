"""The kind `cuda`: one NVIDIA GPU or one MIG instance of a host."""

import shutil
import subprocess
from collections.abc import Sequence

from fleetrank.device_agents.contract.agent import Agent
from fleetrank.device_agents.contract.kind import (
    DeviceOptions,
    EnergyMeter,
    HostCheck,
    HostShare,
    Kind,
    Presence,
    Traits,
)
from fleetrank.device_agents.contract.task import Execution
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.vocabulary import Runtime

_TRAITS = Traits(
    infers=True,
    # Alone, because the host's processor feeds the GPU.
    share=HostShare.ALONE,
    needs_quiet=True,
    energy=EnergyMeter.DEVICE,
)
_QUERY = ("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
_QUERY_TIMEOUT_S = 10


def _create_agent(options: DeviceOptions) -> Agent:
    from fleetrank.device_agents.cuda.agent import CudaAgent

    return CudaAgent(options)


def _default_backend(runtime: Runtime) -> str:
    from fleetrank.device_agents.runtimes.gpu_backends import GPU_RUNTIMES
    from fleetrank.device_agents.runtimes.runner import default_backend

    known = GPU_RUNTIMES.get(runtime)
    return default_backend(runtime) if known is None else known.default_backend


def _seen_here() -> tuple[str, ...] | None:
    """UUIDs of this host's GPUs and MIG instances; `None` if no NVIDIA driver answers."""
    from fleetrank.device_agents.cuda.nvml import open_nvml

    try:
        found = open_nvml().find()
    except FleetError:
        return None  # no driver, or no binding for it
    return tuple(gpu.uuid for gpu in found.gpus if not gpu.is_divided)


def _why_absent(options: DeviceOptions, seen: tuple[str, ...] | None) -> str | None:
    wanted = str(options.get("uuid", ""))
    if any(uuid.startswith(wanted) for uuid in seen or ()):
        return None
    return "which has no such GPU: compare `nvidia-smi -L` there with the device's file"


def judge_driver(driver_line: str | None, *, has_driver_files: bool) -> HostCheck:
    """Checks the NVIDIA driver by the output of `nvidia-smi`, if it is installed."""
    if driver_line is not None:
        return HostCheck(name="gpu", message=driver_line)
    if has_driver_files:
        return HostCheck(
            name="gpu",
            message="nvidia-smi is installed but does not respond",
            remedy="check the driver with `nvidia-smi`; after a driver update, reboot",
        )
    return HostCheck(name="gpu", message="no NVIDIA driver (only GPU devices need it)")


def _check_host() -> Sequence[HostCheck]:
    path = shutil.which(_QUERY[0])
    return (judge_driver(_first_line(path), has_driver_files=path is not None),)


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


def _check_library(runtime: Runtime) -> None:
    from fleetrank.device_agents.runtimes.runner import check_library

    check_library(runtime)


def _why_not_profiled(execution: Execution) -> str | None:
    from fleetrank.device_agents.profiling.profiler import why_not_profiled

    return why_not_profiled(execution)


def _why_not_replicated(execution: Execution) -> str | None:
    from fleetrank.device_agents.host.replica_client import why_not_replicated

    return why_not_replicated(execution)


CUDA = Kind(
    create_agent=_create_agent,
    traits_of=lambda _options: _TRAITS,
    default_backend=_default_backend,
    check_library=_check_library,
    is_probed_when_added=True,
    presence=Presence(noun="gpus", seen_here=_seen_here, why_absent=_why_absent),
    check_host=_check_host,
    why_not_profiled=_why_not_profiled,
    why_not_replicated=_why_not_replicated,
)
