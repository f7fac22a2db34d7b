"""The server's side of a computing child: starts it, asks it, and ends it when it takes too long.

A child stays warm between jobs; importing the libraries of the analysis takes longer than most
answers. Whatever a job does to it (crash, memory, no end), the next job gets a new one.
"""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
from pathlib import Path
from time import monotonic

from orchestrator.server.errors import RefusedError
from orchestrator.server.jobs import FORGET, Job, JobKind, Result

_THREADS = ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ARROW_IO_THREADS")
"""Arrow's own threads follow OMP_NUM_THREADS."""
_CHUNK_BYTES = 1 << 20
_MAX_BODY_BYTES = 256 << 20
"""Fifty times the largest page; more is a child gone mad."""


class _NoAnswerError(Exception):
    """The child ended, or did not answer in time: what it says is which."""


class Child:
    """One computing child, asked by one thread at a time."""

    def __init__(
        self, results: Path, *, memory_limit_bytes: int, threads: int | None = None
    ) -> None:
        """Describes the child; it is started with the first job.

        Args:
            results: the folder it reads.
            memory_limit_bytes: what it may allocate, the stacks of its threads included.
            threads: of each library; `None` leaves it to them, which take one per core.
        """
        limit = str(memory_limit_bytes)
        # -P: a workspace folder cannot shadow a package.
        module = ("-P", "-m", "orchestrator.server.worker")
        self._command = [sys.executable, *module, str(results), limit]
        self._environment = os.environ | {
            name: str(threads) for name in _THREADS if threads is not None
        }
        self._limit_mib = memory_limit_bytes >> 20
        self._process: subprocess.Popen[bytes] | None = None
        self._fingerprint = ""
        self._lock = threading.Lock()

    def ask(self, job: Job, fingerprint: str, *, timeout_s: float) -> Result:
        """Has a job answered from the results as they are now.

        Args:
            job: what to answer.
            fingerprint: of the results' files; another than last time makes the child look anew.
            timeout_s: the child is killed after it.

        Raises:
            RefusedError: there is no answer; says why.
        """
        with self._lock:
            process = self._running()
            is_new = fingerprint != self._fingerprint
            self._fingerprint = fingerprint
            try:
                return _ask(process, (FORGET if is_new else b"") + job.line(), timeout_s)
            except RefusedError:
                raise
            except (_NoAnswerError, BrokenPipeError) as error:
                code = self._kill()
                raise self._no_answer(job, code, timeout_s, is_late=str(error) == "late") from error
            except BaseException:
                self._kill()
                raise

    def close(self) -> None:
        """Ends the child, whatever it does."""
        self._kill()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._kill()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=self._environment,
                start_new_session=True,
            )
        return self._process

    def _kill(self) -> int | None:
        """Its exit code, if there was one to end."""
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
        self, job: Job, code: int | None, timeout_s: float, *, is_late: bool
    ) -> RefusedError:
        kind = "QueryError" if job.kind is JobKind.QUERY else "Defect"
        if is_late:
            return RefusedError(
                kind, f"it took longer than {timeout_s:g} s and was ended", "narrow it"
            )
        return RefusedError(
            kind,
            f"it ended the process that computed it (exit code {code})",
            f"it may need more than the {self._limit_mib} MiB it is given: narrow it",
        )


def _ask(process: subprocess.Popen[bytes], lines: bytes, timeout_s: float) -> Result:
    if process.stdin is None or process.stdout is None:
        raise _NoAnswerError("no pipes")
    process.stdin.write(lines)
    process.stdin.flush()
    received = bytearray()
    deadline_s = monotonic() + timeout_s
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if (result := _parse(received)) is not None:
                return result
            if not selector.select(max(0.0, deadline_s - monotonic())):
                raise _NoAnswerError("late")
            chunk = os.read(process.stdout.fileno(), _CHUNK_BYTES)
            if not chunk or len(received) > _MAX_BODY_BYTES:
                raise _NoAnswerError("ended")
            received += chunk


def _parse(received: bytearray) -> Result | None:
    """The reply, once all of it is there.

    Raises:
        RefusedError: it is a refusal.
    """
    end = received.find(b"\n")
    if end < 0:
        return None
    head = json.loads(received[:end])
    if "error" in head:
        raise RefusedError(head["error"], head["message"], head["remedy"])
    body = bytes(received[end + 1 :])
    if len(body) < head["size_bytes"]:
        return None
    return Result(media_type=head["media_type"], body=body)
