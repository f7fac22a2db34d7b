"""The worker's own process: what it inherits, its CPUs, its memory, its folder.

A Ray worker passes on nice 15, `OMP_NUM_THREADS=1` and oom_score_adj 1000; a measuring process
that keeps them is slower than the same process started by hand. They are undone before any library
starts threads.

`ru_maxrss` is not used: it survives fork and exec, so a small child of a large parent reports the
parent's peak (seen: 511 MB, while VmHWM was 11 MB).
"""

import os
import re
import resource
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fleetrank.device_agents.contract.measurement import WorkerFacts

_OOM_SCORE_ADJ = Path("/proc/self/oom_score_adj")
_DROPPED_PREFIXES = ("OMP_", "KMP_", "GOMP_")


def pin(cpus: tuple[int, ...] | None) -> None:
    """Pins this process, and so every thread its libraries start later.

    Raises:
        OSError: this process may not use any of these CPUs.
    """
    if cpus is not None and sys.platform == "linux":
        os.sched_setaffinity(0, cpus)


def shed_inheritance() -> WorkerFacts:
    """Removes OpenMP's variables, requests normal priority, and returns what every row stores."""
    omp_num_threads = os.environ.get("OMP_NUM_THREADS")
    for name in [name for name in os.environ if name.startswith(_DROPPED_PREFIXES)]:
        del os.environ[name]
    # Improving the inherited values needs a privilege for both; the row stores the result.
    with suppress(OSError):
        if os.getpriority(os.PRIO_PROCESS, 0) > 0:
            os.setpriority(os.PRIO_PROCESS, 0, 0)
    with suppress(OSError):
        if _read_oom_score_adj() != 0:
            _OOM_SCORE_ADJ.write_text("0", encoding="ascii")
    return WorkerFacts(
        niceness=os.getpriority(os.PRIO_PROCESS, 0),
        oom_score_adj=_read_oom_score_adj(),
        omp_num_threads=omp_num_threads,
    )


def usable_cpus() -> tuple[int, ...] | None:
    """CPUs this process may run on; `None` if the system does not report it."""
    if sys.platform != "linux":
        return None
    return tuple(sorted(os.sched_getaffinity(0)))


def involuntary_switches() -> int:
    """Context switches forced on all threads of this process since it started."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _read_oom_score_adj() -> int | None:
    try:
        return int(_OOM_SCORE_ADJ.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


_LINE = re.compile(r"^(VmRSS|VmHWM):[ \t]*(\d{1,18}) kB$", re.MULTILINE | re.ASCII)
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


def text_of(path: Path) -> str:
    """The text of a file of the system; empty if it is missing or cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def number_of(path: Path) -> float | None:
    """The integer that a file of the system consists of; `None` for any other content."""
    text = text_of(path).strip()
    return float(text) if re.fullmatch(r"-?\d{1,18}", text, re.ASCII) else None


def read_memory() -> Memory:
    """Memory of this process; both values are `None` on a system without procfs."""
    return parse_status(text_of(_STATUS))


_ANONYMOUS = re.compile(r"^RssAnon:[ \t]*(\d{1,18}) kB$", re.MULTILINE | re.ASCII)


def anonymous_bytes(pid: int, root: Path = Path("/")) -> int | None:
    """Resident memory of a process that no file backs, so that a second one needs as much again.

    `None` if the process has ended or the system does not say.

    Source: proc_pid_status(5): RssAnon in kB, since Linux 4.5.
    """
    found = _ANONYMOUS.search(text_of(root / f"proc/{pid}/status"))
    return None if found is None else 1024 * int(found[1])


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
