"""The parent's side of a computing child: starts it, sends jobs, and kills it at a time limit.

A child keeps running between jobs, because importing the libraries of the analysis takes longer
than most answers. If a job ends the child (crash, memory, time limit), the next job starts a new
one.
"""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import TypeVar

from fleetrank.orchestrator.compute.errors import RefusedError
from fleetrank.orchestrator.compute.jobs import FORGET, READY, Job, Reply, Result

QUERY_MEMORY_BYTES = 2 << 30
"""DuckDB uses at most 1 GB, except for single huge values; the libraries use the rest."""
QUERY_GRACE_S = 0.5
"""DuckDB is interrupted at the limit; a child that does not react is killed after this."""
_START_S = 60.0
"""Loading the libraries takes 1 s; on a busy host with a cold disk, many times that."""
_THREADS = ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ARROW_IO_THREADS")
"""Arrow's own threads follow OMP_NUM_THREADS."""
_ALLOCATOR = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
"""Arrow's default (mimalloc in pyarrow 24) reserves 1 GiB at start, which the limit counts."""
_CHUNK_BYTES = 1 << 20
_MAX_BODY_BYTES = 256 << 20
"""Fifty times the largest page; a longer reply is an error of the child."""

Said = TypeVar("Said")


class _NoAnswerError(Exception):
    """The child ended, or did not answer in time; the message says which."""


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
            threads: threads of each library; `None` uses their default, one per core.
            is_quiet: whether the output of its libraries is dropped.
        """
        limit = str(memory_limit_bytes)
        # -P: a workspace folder cannot shadow a package.
        module = ("-P", "-m", "fleetrank.orchestrator.compute.worker")
        self._command = [sys.executable, *module, str(results), limit]
        thread_counts = {name: str(threads) for name in _THREADS if threads is not None}
        self._environment = os.environ | _ALLOCATOR | thread_counts
        self._limit_mib = memory_limit_bytes >> 20
        self._errors = subprocess.DEVNULL if is_quiet else None
        self._process: subprocess.Popen[bytes] | None = None
        self._fingerprint = ""
        self._lock = threading.Lock()

    def ask(self, job: Job, fingerprint: str, *, timeout_s: float) -> Result:
        """Sends a job to the child, which answers it from the current results.

        Args:
            job: what to answer.
            fingerprint: fingerprint of the results' files; if it has changed, the child scans
                again.
            timeout_s: time limit; the child is killed after it.

        Raises:
            RefusedError: the job has no answer; the message gives the reason.
        """
        with self._lock:
            try:
                process = self._running()
                is_new = fingerprint != self._fingerprint
                self._fingerprint = fingerprint
                _send(process, (FORGET if is_new else b"") + job.line())
                reply = _receive(process, Reply.parse, timeout_s)
                if reply.is_last:
                    self._kill()
                return reply.result()
            except RefusedError:
                raise
            except (_NoAnswerError, BrokenPipeError) as error:
                code = self._kill()
                limit_s = job.timeout_s if job.is_query else timeout_s
                raise self._no_answer(job, code, limit_s, is_late=str(error) == "late") from error
            except BaseException:
                self._kill()
                raise

    def close(self) -> None:
        """Ends the child, even while it computes."""
        self._kill()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._kill()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=self._environment,
                start_new_session=True,
            )
            # The time limit is for the job and does not include the start of the child.
            _receive(self._process, _parse_ready, _START_S)
        return self._process

    def _kill(self) -> int | None:
        """Ends the child and returns its exit code; `None` if no child was running."""
        process, self._process = self._process, None
        if process is None:
            return None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        ended = process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        return ended

    def _no_answer(
        self, job: Job, code: int | None, limit_s: float, *, is_late: bool
    ) -> RefusedError:
        what = "the query" if job.is_query else "it"
        kind = "QueryError" if job.is_query else "Defect"
        if is_late:
            return RefusedError(
                kind, f"{what} took longer than {limit_s:g} s and was ended", "select less data"
            )
        return RefusedError(
            kind,
            f"{what} ended the process that computed it ({_named(code)})",
            f"it may need more than its limit of {self._limit_mib} MiB: select less data",
        )


def _named(code: int | None) -> str:
    """How a process ended; a negative code is the signal that ended it."""
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"


def _send(process: subprocess.Popen[bytes], lines: bytes) -> None:
    if process.stdin is None:
        raise _NoAnswerError("no pipe")
    process.stdin.write(lines)
    process.stdin.flush()


def _receive(
    process: subprocess.Popen[bytes], parse: Callable[[bytearray], Said | None], timeout_s: float
) -> Said:
    """Reads from the child until `parse` finds a complete message."""
    if process.stdout is None:
        raise _NoAnswerError("no pipe")
    received = bytearray()
    deadline_s = monotonic() + timeout_s
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if (said := parse(received)) is not None:
                return said
            if not selector.select(max(0.0, deadline_s - monotonic())):
                raise _NoAnswerError("late")
            chunk = os.read(process.stdout.fileno(), _CHUNK_BYTES)
            if not chunk or len(received) > _MAX_BODY_BYTES:
                raise _NoAnswerError("ended")
            received += chunk


def _parse_ready(received: bytearray) -> bool | None:
    return True if received == READY else None
