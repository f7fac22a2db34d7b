"""Is this host quiet, roomy and unthrottled enough to measure on? Judging is pure."""

import os
import shutil
from pathlib import Path

import psutil

from fleetrank.device_agents.confinement.landlock import NETWORK_ABI
from fleetrank.device_agents.confinement.landlock import abi as landlock_abi
from fleetrank.device_agents.host.conditions import read_governor
from fleetrank.device_agents.timing.flags import MAX_BUSY_SHARE
from fleetrank.orchestrator.doctor.finding import Finding, ok, warning
from fleetrank.orchestrator.doctor.finding import error as failed

_GIB = 1024**3
MIN_FREE_DISK_BYTES = 2 * _GIB
"""13 models in three formats take 0.9 GiB; half of this is the least to finish a sweep with."""
_BUSY_WINDOW_S = 1.0


def judge_disk(free_bytes: int) -> Finding:
    """Judges the free space of the file system that holds the workspace."""
    message = f"{free_bytes / _GIB:.1f} GiB free"
    if free_bytes >= MIN_FREE_DISK_BYTES:
        return ok("disk", message)
    remedy = (
        "free some space, or bound the artifact cache with `fleetrank models prune --max-size 2GB`"
    )
    if free_bytes >= MIN_FREE_DISK_BYTES // 2:
        return warning("disk", message, remedy)
    return failed("disk", message, remedy)


def judge_cores(usable: int, present: int) -> Finding:
    """Judges the cores this process may use against those of the machine."""
    if usable < present:
        return warning(
            "cores",
            f"{usable} of {present} cores may be used",
            "start fleetrank without taskset or a cpuset to use them all",
        )
    return ok("cores", f"{present} cores")


def judge_governor(governor: str | None) -> Finding:
    """Judges the frequency governor; `None` where the system does not tell, as in most VMs."""
    if governor is None:
        return ok("governor", "not told by this system (usual in a virtual machine)")
    if governor == "performance":
        return ok("governor", governor)
    return warning(
        "governor",
        f"{governor}: the clock follows the load",
        "set it with `cpupower frequency-set -g performance` (needs root)",
    )


def judge_load(busy_share: float) -> Finding:
    """Judges the share of all cores' time that other processes used just now."""
    message = f"{busy_share:.0%} of the cores are busy"
    if busy_share <= MAX_BUSY_SHARE:
        return ok("load", message)
    return warning(
        "load", message, "stop other work on this host: it can slow 2-thread runs many times over"
    )


def judge_niceness(niceness: int) -> Finding:
    """Judges the priority that every measuring process would inherit."""
    if niceness <= 0:
        return ok("niceness", str(niceness))
    return warning(
        "niceness",
        f"{niceness}: measurements run at low priority",
        "start fleetrank from a shell that is not niced; rows are flagged `niced` until then",
    )


def judge_memory(available_bytes: int) -> Finding:
    """Judges the memory available; exporting the largest model takes about 3 GiB."""
    message = f"{available_bytes / _GIB:.1f} GiB available"
    if available_bytes >= 4 * _GIB:
        return ok("memory", message)
    return warning("memory", message, "close other programs: large exports may be killed")


def judge_confinement(abi: int | None) -> Finding:
    """Judges what holds a model file from outside; `abi` is as in `landlock.abi`."""
    if abi is None:
        return warning(
            "confinement",
            "audit: this kernel has no Landlock, so Python alone holds model files from outside",
            "use Linux 6.7 or later with `landlock` among the names in /sys/kernel/security/lsm; "
            "until then measure files from outside as another user or in a container",
        )
    network = "" if abi >= NETWORK_ABI else ", which leaves TCP open (Linux 6.7 closes it)"
    return ok("confinement", f"landlock{abi}+audit around model files from outside{network}")


def check_host(workspace: Path) -> list[Finding]:
    """Reads this host and judges it; takes about a second to sample the load."""
    return [
        judge_disk(shutil.disk_usage(workspace).free),
        judge_memory(psutil.virtual_memory().available),
        judge_cores(len(os.sched_getaffinity(0)), os.cpu_count() or 1),
        judge_governor(read_governor()),
        judge_load(psutil.cpu_percent(interval=_BUSY_WINDOW_S) / 100),
        judge_niceness(os.nice(0)),
        judge_confinement(landlock_abi()),
    ]
