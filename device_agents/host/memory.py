"""Resident memory of this process: size, peak, reset of the peak; and the limit of a worker.

`ru_maxrss` is not used: it survives fork and exec, so a small child of a large parent reports the
parent's peak (seen: 511 MB, while VmHWM was 11 MB).
"""

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LIMIT_SHARE = 0.8
"""Share of the host's memory: the system, Ray and the driver need the rest (1 to 2 GB)."""

_LINE = re.compile(r"^(VmRSS|VmHWM):[ \t]*+(\d{1,18}+) kB$", re.MULTILINE | re.ASCII)
_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Resident set now and at its peak since the last reset; `None` if unknown."""

    resident_bytes: int | None
    peak_bytes: int | None


def parse_status(text: str) -> Memory:
    """Reads `/proc/<pid>/status`.

    Source: proc_pid_status(5): VmRSS and VmHWM in kB, which are units of 1024 bytes.
    """
    found = {name: int(number) * 1024 for name, number in _LINE.findall(text)}
    return Memory(resident_bytes=found.get("VmRSS"), peak_bytes=found.get("VmHWM"))


def read_memory() -> Memory:
    """Memory of this process; both values are `None` on a system without procfs."""
    try:
        return parse_status(_STATUS.read_text(encoding="ascii", errors="replace"))
    except OSError:
        return Memory(resident_bytes=None, peak_bytes=None)


def reset_peak() -> bool:
    """Resets the peak to the current size; false if the system does not allow it.

    Source: proc_pid_clear_refs(5), value 5.
    """
    try:
        os.write(_clear_refs_fd(), b"5")
    except OSError:
        return False
    return True


@cache
def _clear_refs_fd() -> int:
    """The file stays open: a confined worker opens it before it is confined."""
    return os.open(_CLEAR_REFS, os.O_WRONLY | os.O_CLOEXEC)


def growth_bytes(baseline: int | None, peak: int | None) -> int | None:
    """Peak over the baseline; 0 if freed memory makes it lower, `None` if one is missing."""
    if baseline is None or peak is None:
        return None
    return max(peak - baseline, 0)


def default_limit_bytes(root: Path = Path("/")) -> int:
    """The default memory limit of one worker: a share of this host's memory, in bytes.

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
