"""Answers to jobs: cached until the results change, then computed again."""

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from fleetrank.device_agents.host.memory import default_limit_bytes
from fleetrank.orchestrator.compute.child import QUERY_GRACE_S, QUERY_MEMORY_BYTES, Child
from fleetrank.orchestrator.compute.jobs import Job, JobKind, Result
from fleetrank.orchestrator.server.errors import BusyError
from fleetrank.orchestrator.server.fingerprint import Fingerprint
from fleetrank.orchestrator.server.turn import Turn

_PATIENCE_S = 45.0
"""How long a request waits for the end of the running repeat: by default a repeat is timed for
20 s, after a warm-up of at most 10 s. Then the server gets the host's lease."""
_COMPUTE_S = 180.0
"""All tables of 10^6 rows take 30 s on two cores."""
_QUERY_THREADS = 2
"""Threads of each library: on a host of 128 cores the stacks alone would use the memory."""
_REMEMBERED_BYTES = 128 << 20
"""Room for a few pages of 5 MB and thousands of tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer as it is sent.

    Attributes:
        tag: differs when the body differs.
        is_current: whether the results have not changed since it was made.
    """

    media_type: str
    body: bytes
    tag: str
    fingerprint: str
    made_utc: datetime
    is_current: bool = True


class Answers:
    """Computes and caches answers from one results folder; used by many threads."""

    def __init__(self, results: Path, *, turn: Turn | None = None) -> None:
        self._fingerprint = Fingerprint(results)
        self._turn = turn or Turn()
        self._figures = Child(results, memory_limit_bytes=default_limit_bytes())
        # SQL comes from outside, so it runs in a separate process.
        self._queries = Child(
            results, memory_limit_bytes=QUERY_MEMORY_BYTES, threads=_QUERY_THREADS
        )
        self._kept: OrderedDict[Job, Answer] = OrderedDict()
        self._lock = threading.Lock()

    def remembered(self, job: Job) -> Answer | None:
        """Returns the cached answer, if the results have not changed since."""
        answer = self._last(job)
        is_fresh = answer is not None and answer.fingerprint == self._fingerprint.now()
        return answer if is_fresh else None

    def get(self, job: Job) -> Answer:
        """Returns the answer; an older one, marked as such, while this host cannot compute.

        Raises:
            RefusedError: the job has no answer; the message gives the reason.
            BusyError: the answer cannot be computed now, and no older answer exists.
        """
        last = self._last(job)
        try:
            with self._turn.take(0.0 if last else _PATIENCE_S):
                # Another thread may have computed the same answer meanwhile.
                return self.remembered(job) or self._compute(job)
        except BusyError:
            if last is None:
                raise
            return replace(last, is_current=last.fingerprint == self._fingerprint.now())

    def fingerprint(self) -> str:
        """The fingerprint of the published results; differs when they differ."""
        return self._fingerprint.now()

    def close(self) -> None:
        """Ends both children."""
        self._figures.close()
        self._queries.close()

    def _compute(self, job: Job) -> Answer:
        fingerprint = self._fingerprint.now()
        is_query = job.kind is JobKind.QUERY
        child = self._queries if is_query else self._figures
        timeout_s = job.timeout_s + QUERY_GRACE_S if is_query else _COMPUTE_S
        answer = _answer(child.ask(job, fingerprint, timeout_s=timeout_s), fingerprint)
        if not is_query:
            # SQL can depend on the time of day, so its answers are not cached.
            self._keep(job, answer)
        return answer

    def _last(self, job: Job) -> Answer | None:
        with self._lock:
            if (answer := self._kept.get(job)) is not None:
                self._kept.move_to_end(job)
            return answer

    def _keep(self, job: Job, answer: Answer) -> None:
        with self._lock:
            self._kept[job] = answer
            self._kept.move_to_end(job)
            size = sum(len(kept.body) for kept in self._kept.values())
            while size > _REMEMBERED_BYTES and len(self._kept) > 1:
                size -= len(self._kept.popitem(last=False)[1].body)


def _answer(result: Result, fingerprint: str) -> Answer:
    return Answer(
        media_type=result.media_type,
        body=result.body,
        tag=hashlib.sha256(result.body).hexdigest()[:16],
        fingerprint=fingerprint,
        made_utc=datetime.now(UTC),
    )
