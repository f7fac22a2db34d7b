"""The default memory limit of one worker."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

LIMIT_SHARE = 0.8
"""Share of the host's memory: the system, Ray and the driver need the rest (1 to 2 GB)."""


def default_limit_bytes(root: Path = Path("/")) -> int:
    """A share of this host's memory, in bytes.

    If a control group's limit is lower, it counts: reaching it would kill the worker.
    """
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return int(LIMIT_SHARE * min(total, *_group_limits_bytes(root)))


def _group_limits_bytes(root: Path) -> Iterator[int]:
    """Limits of this process's control group (version 2) and of its parent groups."""
    yield sys.maxsize
    try:
        text = (root / "proc/self/cgroup").read_text(encoding="ascii", errors="replace")
    except OSError:
        return
    name = next((line[3:] for line in text.splitlines() if line.startswith("0::/")), "/")
    mount = root / "sys/fs/cgroup"
    group = mount / name.lstrip("/")
    for folder in (group, *group.parents):
        if not folder.is_relative_to(mount):
            return
        try:
            limit = (folder / "memory.max").read_text(encoding="ascii").strip()
        except OSError:
            continue
        if limit.isdecimal():
            yield int(limit)
