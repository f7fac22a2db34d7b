"""Checks whether this host is suitable for measuring, and what it can see of each kind."""

import os
import shutil
from pathlib import Path

import psutil

from fleetrank.device_agents.confinement import seccomp
from fleetrank.device_agents.confinement.landlock import NETWORK_ABI
from fleetrank.device_agents.confinement.landlock import abi as landlock_abi
from fleetrank.device_agents.confinement.walls import names_of
from fleetrank.device_agents.host.conditions import read_governor
from fleetrank.device_agents.registry import load_kinds
from fleetrank.device_agents.timing.flags import MAX_BUSY_SHARE
from fleetrank.orchestrator.doctor.finding import Finding, ok, warning
from fleetrank.orchestrator.doctor.finding import error as failed

_GIB = 1024**3
MIN_FREE_DISK_BYTES = 2 * _GIB
"""13 models in three formats take 0.9 GiB; half of this is the minimum to finish a sweep."""
_BUSY_WINDOW_S = 1.0


def judge_disk(free_bytes: int) -> Finding:
    """Checks the free space of the workspace's file system."""
    message = f"{free_bytes / _GIB:.1f} GiB free"
    if free_bytes >= MIN_FREE_DISK_BYTES:
        return ok("disk", message)
    remedy = (
        "free some space, or limit the artifact cache: `fleetrank models prune` with `max_size=2GB`"
    )
    if free_bytes >= MIN_FREE_DISK_BYTES // 2:
        return warning("disk", message, remedy)
    return failed("disk", message, remedy)


def judge_cores(usable: int, present: int) -> Finding:
    """Compares the cores that this process may use with those of the machine."""
    if usable < present:
        return warning(
            "cores",
            f"only {usable} of {present} cores may be used",
            "start fleetrank without taskset or a cpuset to use them all",
        )
    return ok("cores", f"{present} cores")


def judge_governor(governor: str | None) -> Finding:
    """Checks the frequency governor; `None` if the system does not report it, as in most VMs."""
    if governor is None:
        return ok("governor", "not reported by this system (usual in a virtual machine)")
    if governor == "performance":
        return ok("governor", governor)
    return warning(
        "governor",
        f"{governor}: the clock frequency depends on the load",
        "set it with `cpupower frequency-set -g performance` (needs root)",
    )


def judge_load(busy_share: float) -> Finding:
    """Checks the share of all cores' time that other processes are using now."""
    message = f"{busy_share:.0%} of the cores are busy"
    if busy_share <= MAX_BUSY_SHARE:
        return ok("load", message)
    return warning(
        "load",
        message,
        "stop other work on this host: it can make 2-thread runs several times slower",
    )


def judge_niceness(niceness: int) -> Finding:
    """Checks the priority that every measuring process would inherit."""
    if niceness <= 0:
        return ok("niceness", str(niceness))
    return warning(
        "niceness",
        f"{niceness}: measurements run at low priority",
        "start fleetrank from a shell that is not niced; rows are flagged `niced` until then",
    )


def judge_memory(available_bytes: int) -> Finding:
    """Checks the available memory; exporting the largest model takes about 3 GiB."""
    message = f"{available_bytes / _GIB:.1f} GiB available"
    if available_bytes >= 4 * _GIB:
        return ok("memory", message)
    return warning("memory", message, "close other programs: large exports may be killed")


def judge_confinement(abi: int | None, *, has_filter: bool) -> Finding:
    """Checks the confinement of model files from outside.

    Args:
        abi: as in `landlock.abi`.
        has_filter: as in `seccomp.is_available`.
    """
    names = names_of(abi, has_filter=has_filter, has_audit=True)
    if abi is None:
        return warning(
            "confinement",
            f"{names}: this kernel has no Landlock, so only Python keeps model files from outside "
            "from reading and writing your files",
            "use Linux 6.7 or later with `landlock` among the names in /sys/kernel/security/lsm; "
            "until then measure files from outside as another user or in a container",
        )
    is_tcp_open = abi < NETWORK_ABI and not has_filter
    network = ", which leaves TCP open (Linux 6.7 closes it)" if is_tcp_open else ""
    return ok("confinement", f"{names} around model files from outside{network}")


def check_host(workspace: Path) -> list[Finding]:
    """Reads this host's state and checks it; takes about a second to sample the load."""
    return [
        judge_disk(shutil.disk_usage(workspace).free),
        judge_memory(psutil.virtual_memory().available),
        judge_cores(len(os.sched_getaffinity(0)), os.cpu_count() or 1),
        judge_governor(read_governor()),
        judge_load(psutil.cpu_percent(interval=_BUSY_WINDOW_S) / 100),
        judge_niceness(os.nice(0)),
        judge_confinement(landlock_abi(), has_filter=seccomp.is_available()),
    ]


def check_devices() -> list[Finding]:
    """Checks what the kinds of devices need of this host, such as adb or a GPU's driver."""
    return [
        ok(check.name, check.message)
        if check.remedy is None
        else warning(check.name, check.message, check.remedy)
        for one in load_kinds().values()
        if one.check_host is not None
        for check in one.check_host()
    ]
