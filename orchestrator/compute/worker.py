"""A computing child: reads a line of JSON, writes a line and a body, one job after another.

`child` starts it as a module with the results folder and the memory limit as arguments. It ends
when its input ends, even during a job.
"""

import logging
import os
import queue
import resource
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from fleetrank.analysis.stored.part_list import damage_in
from fleetrank.foundation.errors import FleetError, is_rust_panic
from fleetrank.foundation.own_process import (
    keep_stdout_for_the_result,
    limit_memory,
    lower_priority,
)
from fleetrank.foundation.reading_beside import reading_beside_measurements
from fleetrank.orchestrator.compute.jobs import Job, JobKind, Reply, Result

_log = logging.getLogger(__name__)


def main() -> None:
    """Answers until the input ends."""
    results = Path(sys.argv[1])
    lower_priority()
    limit_memory(int(sys.argv[2]) if len(sys.argv) > 2 else None)
    output = os.fdopen(keep_stdout_for_the_result(), "wb")
    # Imported after the limit is set, because the limit includes the memory of the libraries.
    from fleetrank.orchestrator.compute.answering import Answering

    answering = Answering(results)
    has_grown = _growth_watch()
    fingerprint = ""
    for line in _lines():
        job = Job.parse(line)
        if job.kind is JobKind.START:
            reply, body = Reply(), b""
        else:
            if job.fingerprint != fingerprint:
                answering.forget()
                fingerprint = job.fingerprint
            with reading_beside_measurements(limit_s=job.wait_s, say=_log.warning):
                reply, body = _reply(answering.answer, job, results)
        # An allocator can keep the memory of a query, and the next query would have less.
        is_last = job.is_query and has_grown()
        output.write(replace(reply, is_last=is_last).encode(body))
        output.flush()
        if is_last:
            return


def _growth_watch() -> Callable[[], bool]:
    """Returns a function: has this process taken a quarter of its limit since now?"""
    limit_bytes, before = resource.getrlimit(resource.RLIMIT_DATA)[0], _data_bytes()
    if limit_bytes == resource.RLIM_INFINITY:
        return lambda: False
    return lambda: _data_bytes() - before > limit_bytes // 4


def _data_bytes() -> int:
    """Returns the memory that the limit counts; 0 if the system does not report it."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmData")), 0)


def _lines() -> Iterator[bytes]:
    """Yields jobs as they arrive; the end of the input ends the process, even during a job."""
    waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin.buffer:
            waiting.put(line)
        os._exit(0)

    threading.Thread(target=read, name="stdin-reader", daemon=True).start()
    while True:
        yield waiting.get()


def _reply(answer: Callable[[Job], Result], job: Job, results: Path) -> tuple[Reply, bytes]:
    """Answers one job; every error becomes a reply."""
    try:
        result = answer(job)
        return Reply(media_type=result.media_type), result.body
    except FleetError as error:
        return Reply.refusing(error), b""
    except MemoryError:
        limit_mib = resource.getrlimit(resource.RLIMIT_DATA)[0] >> 20
        message = f"it needs more memory than its limit of {limit_mib} MiB"
        return Reply(refusal=("QueryError", message, "select less data")), b""
    except BaseException as error:
        if not (isinstance(error, Exception) or is_rust_panic(error)):
            raise
        if (damaged := damage_in(results)) is not None:
            return Reply.refusing(damaged), b""
        message = f"{type(error).__name__}: {error}"
        return Reply(refusal=("Defect", message, "this is a bug in fleetrank")), b""


if __name__ == "__main__":
    main()
