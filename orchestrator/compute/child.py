"""The parent's side of a computing child: starts it, sends jobs, and kills it at a time limit.

A child keeps running between jobs, because importing the libraries of the analysis takes longer
than most answers. If a job ends the child (crash, memory, time limit), the next job starts a new
one.
"""

import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fleetrank.foundation.codec import from_json
from fleetrank.foundation.reading_beside import clock_of_reading
from fleetrank.foundation.supervised_child import End, SupervisedChild, exit_name
from fleetrank.orchestrator.compute.jobs import Job, JobKind, RefusedError, Reply, Result

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
Answer = tuple[Reply, bytes]
"""A reply of a child, and the bytes that follow it."""


def ask(
    child: SupervisedChild,
    request: bytes,
    *,
    timeout_s: float,
    max_bytes: int = _MAX_BODY_BYTES,
    left_s: Callable[[], float] = lambda: 0.0,
) -> tuple[End, Answer | None]:
    """Sends a request and waits for its reply.

    Without a reply, the first value says why: the child ended, or a limit was reached. `left_s`
    says at the time limit how much longer to wait.
    """
    child.stdout.clear()
    child.send(request)
    end, wait_s = End.TIME_LIMIT, timeout_s
    while wait_s > 0:
        end = child.wait(
            deadline_ns=time.perf_counter_ns() + int(wait_s * 1e9),
            max_bytes=max_bytes,
            is_complete=lambda received: _whole_reply(received) is not None,
        )
        wait_s = left_s() if end is End.TIME_LIMIT else 0.0
    answer = answer_in(child.stdout) if end is End.COMPLETE else None
    child.stdout.clear()
    return end, answer


def answer_in(received: bytearray) -> Answer | None:
    """`None` until all of a reply has arrived."""
    reply = _whole_reply(received)
    if reply is None:
        return None
    return reply, bytes(received[len(received) - reply.size_bytes :])


def _whole_reply(received: bytearray) -> Reply | None:
    if (end := received.find(b"\n")) < 0:
        return None
    reply = from_json(Reply, received[:end].decode())
    return reply if len(received) - end - 1 >= reply.size_bytes else None


def _cpu_s(child: SupervisedChild) -> float:
    """Processor time of a child; infinite if it has ended."""
    import psutil  # not for a command that starts no child

    try:
        times = psutil.Process(child.pid).cpu_times()
    except psutil.Error:
        return math.inf
    return float(times.user + times.system)


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
        self._lock = threading.Lock()

    def ask(self, job: Job, fingerprint: str, *, timeout_s: float) -> Result:
        """Sends a job to the child, which answers it from the current results.

        Args:
            job: what to answer.
            fingerprint: fingerprint of the results' files; if it has changed, the child scans
                again.
            timeout_s: time limit beside the job's `wait_s`, as `time_had_s` counts; the child is
                killed after it.

        Raises:
            RefusedError: the job has no answer; the message gives the reason.
        """
        with self._lock:
            try:
                end, answer = self._exchange(replace(job, fingerprint=fingerprint), timeout_s)
            except BaseException:
                self._end()
                raise
            if answer is None:
                limit_s = job.timeout_s if job.is_query else timeout_s
                is_late = end is End.TIME_LIMIT
                raise self._no_answer(job, self._end(), limit_s, is_late=is_late)
            reply, body = answer
            if reply.is_last:
                self._end()
            if reply.refusal is not None:
                raise RefusedError(*reply.refusal)
            return Result(media_type=reply.media_type, body=body)

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

    def _exchange(self, job: Job, timeout_s: float) -> tuple[End, Answer | None]:
        """Starts the child if none runs, and sends the job."""
        child = self._child
        if child is None or child.has_ended():
            self._end()
            child = self._child = SupervisedChild(
                self._command, environment=self._environment, stderr=self._stderr
            )
            # The time limit is for the job and does not include the start of the child.
            end, answer = ask(child, Job(kind=JobKind.START).line(), timeout_s=_START_S)
            if answer is None:
                return end, None
        limit_s = timeout_s + job.wait_s
        had_s = clock_of_reading(lambda: _cpu_s(child))
        return ask(child, job.line(), timeout_s=limit_s, left_s=lambda: limit_s - had_s())

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
