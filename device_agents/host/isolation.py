"""Undoes what the worker's process inherits, before any library starts threads.

A Ray worker passes on nice 15, `OMP_NUM_THREADS=1` and oom_score_adj 1000; a measuring process
that keeps them is slower than the same process started by hand.
"""

import contextlib
import os
import resource
import sys
from dataclasses import dataclass
from pathlib import Path

_OOM_SCORE_ADJ = Path("/proc/self/oom_score_adj")
_DROPPED_PREFIXES = ("OMP_", "KMP_", "GOMP_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inherited:
    """Settings of this process, inherited or corrected where possible; every row stores them."""

    niceness: int | None
    oom_score_adj: int | None
    omp_num_threads: str | None


def pin(cpus: tuple[int, ...] | None) -> None:
    """Pins this process, and so every thread its libraries start later.

    Raises:
        OSError: this process may not use any of these CPUs.
    """
    if cpus is not None and sys.platform == "linux":
        os.sched_setaffinity(0, cpus)


def shed_inheritance() -> Inherited:
    """Removes OpenMP's variables, requests normal priority, and returns the result."""
    omp_num_threads = os.environ.get("OMP_NUM_THREADS")
    for name in [name for name in os.environ if name.startswith(_DROPPED_PREFIXES)]:
        del os.environ[name]
    # Improving the inherited values needs a privilege for both; the row stores the result.
    with contextlib.suppress(OSError):
        if os.getpriority(os.PRIO_PROCESS, 0) > 0:
            os.setpriority(os.PRIO_PROCESS, 0, 0)
    with contextlib.suppress(OSError):
        if _read_oom_score_adj() != 0:
            _OOM_SCORE_ADJ.write_text("0", encoding="ascii")
    return Inherited(
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
