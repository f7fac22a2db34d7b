"""Answers to jobs, computed in turn; a client that has the answer gets no other.

Making a page or answering SQL is a computation, which can change the latency of a measurement on
this host. No measurement waits for it: its child runs at low priority, waits for the end of a
repeat, and is announced, so that a row measured beside it has a flag. No answer is kept here: its
tag names the job and the results, so a client that shows the tag keeps its answer while nothing has
changed, and also while the host measures. Reading a file that has grown is cheap and is not
counted. The HTTP status of each error is here too.
"""

import hashlib
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from types import MappingProxyType

from fleetrank.analysis.stored.exclusions import FILE as EXCLUSIONS
from fleetrank.device_agents.linux.control_groups import default_limit_bytes
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.lease import is_host_measured
from fleetrank.orchestrator.compute.child import QUERY_GRACE_S, QUERY_MEMORY_BYTES, Child
from fleetrank.orchestrator.compute.jobs import Job, JobKind, RefusedError
from fleetrank.orchestrator.errors import OrchestratorError

STAYS = threading.Event()
"""Of a caller that does not leave."""
LOOK_S = 0.2
"""How soon it is noticed that a client has left."""


class BusyError(OrchestratorError):
    """The server is busy: try again; status 503."""


class NotFoundError(OrchestratorError):
    """The requested thing does not exist: status 404."""


RETRY_AFTER_S = 5
"""Value of `Retry-After` of a busy server: longer than most computations."""
INTERNAL = 500
_STATUSES: Mapping[str, int] = MappingProxyType(
    {
        "UsageError": 400,
        "QueryError": 400,
        "AnalysisError": 400,
        "NoDataError": 404,
        "NotFoundError": 404,
        "NothingToDoError": 404,
        "NotComparableError": 409,
        "BusyError": 503,
    }
)


def status_of(error: FleetError) -> int:
    """Returns the HTTP status of an error; 500 if the request did not cause it."""
    kind = error.kind if isinstance(error, RefusedError) else type(error).__name__
    return _STATUSES.get(kind, INTERNAL)


_PATIENCE_S = 45.0
"""How long a request waits for other requests: longer than one that waits for a measurement."""
_REPEAT_S = 30.0
"""How long an answer waits for measurements, before it and between its steps: by default a repeat
is timed for 20 s, after a warm-up of at most 10 s. Then it is computed beside the next one."""
_COMPUTE_S = 180.0
"""All tables of 10^6 rows take 30 s on two cores."""
_QUERY_THREADS = 2
"""Threads of each library: on a host of 128 cores the stacks alone would use the memory."""
_MAX_WAITING = 24
"""Each holds one of the server's 40 threads; further requests get an error and try again."""
_LOOKED_AT = (
    "sweeps/*.parts", "sweeps/*.json", "sweeps/*.tags", "sweeps/*.pending", "schema.json",
    EXCLUSIONS,
)  # fmt: skip
_FRESH_S = 0.5
"""How long a fingerprint is reused: a hundred sweeps need 200 system calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer as it is sent.

    Attributes:
        body: `None` if the client has it: the tag that it showed is then `tag`.
        tag: of this server, the job and the results; `None` for SQL, which can depend on the time.
        fingerprint: of the results that it is made from.
        made_utc: `None` without a body.
        is_current: whether the results have not changed since it was made.
    """

    media_type: str = ""
    body: bytes | None = None
    tag: str | None
    fingerprint: str
    made_utc: datetime | None = None
    is_current: bool = True


class Fingerprint:
    """Fingerprint of one folder's lists of parts, records, tags and exclusions; reads no file."""

    def __init__(self, results: Path) -> None:
        self._results = results
        self._seen: tuple[float, str] | None = None
        self._lock = threading.Lock()

    def now(self) -> str:
        """Returns a text that changes when any file is added, removed or rewritten."""
        with self._lock:
            if self._seen is None or monotonic() - self._seen[0] > _FRESH_S:
                self._seen = (monotonic(), self._look())
            return self._seen[1]

    def _look(self) -> str:
        digest = hashlib.sha256()
        for pattern in _LOOKED_AT:
            for path in sorted(self._results.glob(pattern)):
                try:
                    found = path.stat()
                except FileNotFoundError:
                    continue  # merged with others just now
                digest.update(f"{path.name} {path.parent.name}".encode())
                digest.update(f" {found.st_size} {found.st_mtime_ns} {found.st_ino}\n".encode())
        return digest.hexdigest()[:16]


class ComputeTurn:
    """The right to compute; used by many threads."""

    def __init__(self, *, max_waiting: int = _MAX_WAITING) -> None:
        self._waiting = threading.BoundedSemaphore(max_waiting)
        self._one = threading.Lock()

    @contextmanager
    def take(self, patience_s: float, left: threading.Event = STAYS) -> Iterator[None]:
        """Holds the right to compute during the block; waits at most `patience_s` for it.

        Raises:
            BusyError: too many requests wait, the right was not free in time, or the client left.
        """
        if not self._waiting.acquire(blocking=False):
            raise BusyError(
                "too many requests wait for a computation", "try again in a few seconds"
            )
        try:
            end_s = monotonic() + patience_s
            while not self._one.acquire(timeout=min(patience_s, LOOK_S)):
                if monotonic() >= end_s or left.is_set():
                    raise BusyError(
                        f"other requests took longer than {patience_s:g} s", "try again later"
                    )
            try:
                yield
            finally:
                self._one.release()
        finally:
            self._waiting.release()


class Answers:
    """Computes answers from one results folder; used by many threads."""

    def __init__(self, results: Path, *, turn: ComputeTurn | None = None) -> None:
        self._fingerprint = Fingerprint(results)
        self._turn = turn or ComputeTurn()
        self._figures = Child(results, memory_limit_bytes=default_limit_bytes())
        # SQL comes from outside, so it runs in a separate process.
        self._queries = Child(
            results, memory_limit_bytes=QUERY_MEMORY_BYTES, threads=_QUERY_THREADS
        )
        # Another version of fleetrank can answer otherwise.
        self._start = secrets.token_hex(4)
        self._lock = threading.Lock()
        self._asking: threading.Event | None = None

    def had(self, job: Job, shown: str) -> Answer | None:
        """The answer that the client has, if it may keep it; needs no computation.

        Args:
            job: what to answer.
            shown: the tags that the client shows.
        """
        now = self.fingerprint()
        of_job = self._tag(job, "")
        older = shown.partition(of_job)[2][: len(now)] if of_job in shown else ""
        if job.is_query or not older or (older != now and not is_host_measured()):
            return None
        return Answer(tag=self._tag(job, older), fingerprint=older, is_current=older == now)

    def get(self, job: Job, left: threading.Event = STAYS) -> Answer:
        """Computes the answer.

        Args:
            job: what to answer.
            left: of the client, as for `leave`.

        Raises:
            RefusedError: the job has no answer; the message gives the reason.
            BusyError: the answer cannot be computed now.
        """
        with self._turn.take(_PATIENCE_S, left):
            return self._compute(job, left)

    def _tag(self, job: Job, fingerprint: str) -> str:
        asked = hashlib.sha256(self._start.encode() + job.line()).hexdigest()[:16]
        return f"{asked}-{fingerprint}"

    def leave(self, left: threading.Event) -> None:
        """Gives up the place of a client that has left, and ends its query; a table goes on."""
        left.set()
        with self._lock:
            if self._asking is left:
                self._queries.close()

    def fingerprint(self) -> str:
        """The fingerprint of the published results; differs when they differ."""
        return self._fingerprint.now()

    def close(self) -> None:
        """Ends both children."""
        self._figures.close()
        self._queries.close()

    def _compute(self, job: Job, left: threading.Event) -> Answer:
        fingerprint = self._fingerprint.now()
        is_query = job.kind is JobKind.QUERY
        child = self._queries if is_query else self._figures
        timeout_s = job.timeout_s + QUERY_GRACE_S if is_query else _COMPUTE_S
        asked = replace(job, wait_s=_REPEAT_S)
        self._asking = left if is_query else None
        try:
            result = child.ask(asked, fingerprint, timeout_s=timeout_s)
        finally:
            with self._lock:
                self._asking = None
        return Answer(
            media_type=result.media_type,
            body=result.body,
            tag=None if is_query else self._tag(job, fingerprint),
            fingerprint=fingerprint,
            made_utc=datetime.now(UTC),
        )
