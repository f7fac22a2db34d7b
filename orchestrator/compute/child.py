"""The parent's side of a computing child: starts it, sends jobs, and kills it at a time limit.

A child keeps running between jobs, because importing the libraries of the analysis takes longer
than most answers. If a job ends the child (crash, memory, time limit), the next job starts a new
one.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from fleetrank.foundation.process.supervised_child import End, SupervisedChild, exit_name
from fleetrank.orchestrator.compute.jobs import FORGET, READY, Job, RefusedError, Reply, Result

QUERY_MEMORY_BYTES = 2 << 30
"""DuckDB uses at most 1 GB, except for single huge values; the libraries use the rest."""
QUERY_GRACE_S = 0.5
"""DuckDB is interrupted at the limit; a child that does not react is killed after this."""
_START_S = 60.0
"""Loading the libraries takes 1 s; on a busy host with a cold disk, many times that."""
ONE_BLAS_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""The matrices of tables are small: on a busy host more threads mostly wait for one another, which
takes several times as much time of the cores. Arrow's own threads follow OMP_NUM_THREADS."""
_THREADS = ("POLARS_MAX_THREADS", "ARROW_IO_THREADS")
_ALLOCATOR = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
"""Arrow's default (mimalloc in pyarrow 24) reserves 1 GiB at start, which the limit counts."""
_MAX_BODY_BYTES = 256 << 20
"""Fifty times the largest page; a longer reply is an error of the child."""


class Child:
    """One computing child; one thread uses it at a time."""

    def __init__(
        self,
        results: Path,
        *,
        memory_limit_bytes: int,
        threads: int | None = None,
        is_quiet: bool = False,
    ) -> None:
        """Describes the child; it is started with the first job.

        Args:
            results: the folder it reads.
            memory_limit_bytes: what it may allocate, including the stacks of its threads.
            threads: of Polars and Arrow each; `None` uses their default, one per core.
            is_quiet: whether the output of its libraries is dropped.
        """
        limit = str(memory_limit_bytes)
        # -P: a workspace folder cannot shadow a package.
        module = ("-P", "-m", "fleetrank.orchestrator.compute.worker")
        self._command = [sys.executable, *module, str(results), limit]
        thread_counts = {name: str(threads) for name in _THREADS if threads is not None}
        self._environment = os.environ | _ALLOCATOR | ONE_BLAS_THREAD | thread_counts
        self._limit_mib = memory_limit_bytes >> 20
        self._stderr = subprocess.DEVNULL if is_quiet else None
        self._child: SupervisedChild | None = None
        self._fingerprint = ""
        self._lock = threading.Lock()

    def ask(self, job: Job, fingerprint: str, *, timeout_s: float) -> Result:
        """Sends a job to the child, which answers it from the current results.

        Args:
            job: what to answer.
            fingerprint: fingerprint of the results' files; if it has changed, the child scans
                again.
            timeout_s: time limit beside the job's `wait_s`; the child is killed after it.

        Raises:
            RefusedError: the job has no answer; the message gives the reason.
        """
        with self._lock:
            try:
                end, reply = self._exchange(job, fingerprint, timeout_s)
            except BaseException:
                self._end()
                raise
            if reply is None:
                limit_s = job.timeout_s if job.is_query else timeout_s
                is_late = end is End.TIME_LIMIT
                raise self._no_answer(job, self._end(), limit_s, is_late=is_late)
            if reply.is_last:
                self._end()
            return reply.result()

    def close(self) -> None:
        """Ends the child, even while it computes for another thread."""
        child = self._child
        if child is not None:
            child.kill()
        # A thread that waits for an answer collects the child itself.
        if self._lock.acquire(blocking=False):
            try:
                self._end()
            finally:
                self._lock.release()

    def _exchange(self, job: Job, fingerprint: str, timeout_s: float) -> tuple[End, Reply | None]:
        """Starts the child if none runs, and sends the job; `None` if no reply came."""
        child = self._child
        if child is None or child.has_ended():
            self._end()
            child = self._child = SupervisedChild(
                self._command, environment=self._environment, stderr=self._stderr
            )
            # The time limit is for the job and does not include the start of the child.
            end = _wait(child, lambda received: received == READY, _START_S)
            if end is not End.COMPLETE:
                return end, None
        is_new, self._fingerprint = fingerprint != self._fingerprint, fingerprint
        child.stdout.clear()
        child.send((FORGET if is_new else b"") + job.line())
        end = _wait(child, Reply.is_complete, timeout_s + job.wait_s)
        reply = Reply.parse(child.stdout) if end is End.COMPLETE else None
        child.stdout.clear()
        return end, reply

    def _end(self) -> int | None:
        """Ends the child and returns its exit code; `None` if no child was running."""
        child, self._child = self._child, None
        return None if child is None else child.end()

    def _no_answer(
        self, job: Job, code: int | None, limit_s: float, *, is_late: bool
    ) -> RefusedError:
        what = "the query" if job.is_query else "it"
        kind = "QueryError" if job.is_query else "Defect"
        if is_late:
            return RefusedError(
                kind, f"{what} took longer than {limit_s:g} s and was ended", "select less data"
            )
        how = "unknown exit code" if code is None else exit_name(code)
        return RefusedError(
            kind,
            f"{what} ended the process that computed it ({how})",
            f"it may need more than its limit of {self._limit_mib} MiB: select less data",
        )


def _wait(
    child: SupervisedChild, is_complete: Callable[[bytearray], bool], timeout_s: float
) -> End:
    return child.wait(
        deadline_ns=time.perf_counter_ns() + int(timeout_s * 1e9),
        max_bytes=_MAX_BODY_BYTES,
        is_complete=is_complete,
    )
