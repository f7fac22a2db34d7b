"""The peaks of this host's processor: a large product, and a large copy.

Run as a program in a fresh process that the caller pinned, `python -m ...processor_peaks THREADS`
prints one line of JSON. No data sheet is used: a virtual machine has a share of its host's memory.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from fleetrank.device_agents.errors import PermanentError
from fleetrank.foundation.wording import count_of

_SIDE = 1536
"""Rows and columns of the factors: 28 MB in all, 7 GFLOP, of which BLAS reaches nearly its peak."""
_COPY_BYTES = 256 * 2**20
"""More than the last-level cache of most processors; two arrays of it are touched."""
_BEST_OF = 7
_TIMEOUT_S = 120.0
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The most that a number of threads reaches, one on each core.

    Attributes:
        gflops: 10^9 operations a second of a product of float32 matrices; 2 x MACs.
        gbps: 10^9 bytes a second that a copy reads and writes, both counted.
    """

    threads: int
    gflops: float
    gbps: float


def probe_peak(cpus: Sequence[int]) -> Peak:
    """Measures the peak of these CPUs, one thread on each, in a separate process.

    Raises:
        PermanentError: the process failed; the message has its last words.
    """
    threads = len(cpus)
    command = (
        sys.executable,
        "-P",
        "-m",
        "fleetrank.device_agents.linux.processor_peaks",
        str(threads),
    )
    mask = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cpus)  # the child inherits it
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            env=os.environ | dict.fromkeys(_THREADS, str(threads)),
            check=True,
        )
        return Peak(threads=threads, **json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError, TypeError) as error:
        words = getattr(error, "stderr", None) or str(error)
        raise PermanentError(
            f"the peak of {count_of(threads, 'thread')} could not be measured: {str(words)[-300:]}",
            "free memory on this host: the probe needs 1 GB",
        ) from error
    finally:
        os.sched_setaffinity(0, mask)


def _measure(threads: int) -> dict[str, float]:
    import numpy as np

    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal((_SIDE, _SIDE), dtype=np.float32) for _ in range(2))
    out = np.empty_like(left)
    product_s = _best_s(lambda: np.matmul(left, right, out=out))
    source, target = np.ones(_COPY_BYTES // 8), np.zeros(_COPY_BYTES // 8)
    parts = list(zip(np.array_split(target, threads), np.array_split(source, threads), strict=True))
    with ThreadPoolExecutor(threads) as pool:
        # A copy of a large array releases the interpreter's lock.
        copy_s = _best_s(lambda: list(pool.map(lambda part: np.copyto(*part), parts)))
    return {
        "gflops": round(2 * _SIDE**3 / product_s / 1e9, 2),
        "gbps": round(2 * _COPY_BYTES / copy_s / 1e9, 2),
    }


def _best_s(run: Callable[[], object]) -> float:
    """The shortest of several times: a peak is what is possible, not what is usual."""
    run()
    times = []
    for _ in range(_BEST_OF):
        start = time.perf_counter_ns()
        run()
        times.append(time.perf_counter_ns() - start)
    return min(times) / 1e9


if __name__ == "__main__":
    print(json.dumps(_measure(int(sys.argv[1]))))  # noqa: T201 - the parent reads it
