"""What the control groups of this process allow it, and how often a CPU quota stopped it.

In version 2 a group has the files of all controllers; in version 1 each controller has a tree of
its own. A parent limits too. In a container the name of the group may be that of its host: folders
that are hidden have no files, and the container's own group is the root of the tree.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from fleetrank.device_agents.linux.worker_process import text_of, usable_cpus

_ROOT = Path("/")
LIMIT_SHARE = 0.8
"""Share of the host's memory: the system, Ray and the driver need the rest (1 to 2 GB)."""
_THROTTLED = re.compile(r"^nr_throttled (\d{1,18})$", re.MULTILINE | re.ASCII)


def _folders(controller: str, root: Path) -> Iterator[Path]:
    """Folders of the group of a controller and of its parents, in both versions.

    Source: cgroups(7): lines `number:controllers:/name`, with no controllers in version 2.
    """
    for line in text_of(root / "proc/self/cgroup").splitlines():
        _, controllers, name = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / controllers
        group = mount / name.lstrip("/")
        yield from (one for one in (group, *group.parents) if one.is_relative_to(mount))


def default_limit_bytes(root: Path = _ROOT) -> int:
    """The default memory limit of one worker: a share of this host's memory, in bytes.

    If a control group's limit (version 2) is lower, it counts: reaching it would kill the worker.
    """
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = (text_of(folder / "memory.max").strip() for folder in _folders("memory", root))
    return int(LIMIT_SHARE * min([total, *(int(one) for one in limits if one.isdecimal())]))


def cpu_quota_cores(root: Path = _ROOT) -> float | None:
    """Cores whose time this process may use together; `None` without a quota that limits it.

    A quota of as many cores as this process may run on is usual in clusters.

    Source: the kernel's `cgroup-v2.rst`, cpu.max, and `sched-bwc.rst`: a quota per period, in us.
    """
    found = usable = float(len(usable_cpus() or (0,)))
    for folder in _folders("cpu", root):
        both = (folder / name for name in ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us"))
        match " ".join(map(text_of, both)).split():
            case [quota, period] if quota.isdecimal() and int(period):
                found = min(found, int(quota) / int(period))
    return found if found < usable else None


def times_throttled(root: Path = _ROOT) -> int | None:
    """Periods in which the quota stopped a process of the groups; `None` if none counts them.

    Source: as `cpu_quota_cores`: nr_throttled of cpu.stat.
    """
    texts = (text_of(folder / "cpu.stat") for folder in _folders("cpu", root))
    found = [int(match[1]) for text in texts if (match := _THROTTLED.search(text))]
    return sum(found) if found else None
