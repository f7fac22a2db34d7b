"""A computing child: a line of JSON in, a line and a body out, one job at a time.

Started by `child` as a module, with the results folder and the memory limit as arguments. It ends
when its input ends, also in the middle of a job.
"""

import os
import queue
import resource
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from fleetrank.analysis.stored.part_files import damage_error, damaged_part_of
from fleetrank.device_agents.host.isolation import limit_memory
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.rust_panic import is_rust_panic
from fleetrank.orchestrator.compute.jobs import FORGET, READY, Job, Reply, Result


def main() -> None:
    """Answers until the input ends."""
    results = Path(sys.argv[1])
    limit_memory(int(sys.argv[2]) if len(sys.argv) > 2 else None)
    # What a library prints must not run into an answer.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # Imported under the limit, which counts what the libraries take.
    from fleetrank.orchestrator.compute.answering import Answering

    answering = Answering(results)
    output.write(READY)
    output.flush()
    has_grown = _growth_watch()
    for line in _lines():
        if line == FORGET:
            answering.forget()
            continue
        job = Job.parse(line)
        reply = _reply(answering.answer, job, results)
        # What SQL has taken may be kept by an allocator: the next query would have less.
        is_last = job.is_query and has_grown()
        output.write(replace(reply, is_last=is_last).encode())
        output.flush()
        if is_last:
            return


def _growth_watch() -> Callable[[], bool]:
    """Asked later, whether this process has taken a quarter of its limit since."""
    limit_bytes, before = resource.getrlimit(resource.RLIMIT_DATA)[0], _data_bytes()
    if limit_bytes == resource.RLIM_INFINITY:
        return lambda: False
    return lambda: _data_bytes() - before > limit_bytes // 4


def _data_bytes() -> int:
    """What the limit counts; 0 where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmData")), 0)


def _lines() -> Iterator[bytes]:
    """Jobs as they come; the end of the input ends the process even while a job is computed."""
    waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin.buffer:
            waiting.put(line)
        os._exit(0)

    threading.Thread(target=read, name="stdin-reader", daemon=True).start()
    while True:
        yield waiting.get()


def _reply(answer: Callable[[Job], Result], job: Job, results: Path) -> Reply:
    """Every error is a reply, too."""
    try:
        return Reply(answer=answer(job))
    except FleetError as error:
        return _refusal(error)
    except MemoryError:
        limit_mib = resource.getrlimit(resource.RLIMIT_DATA)[0] >> 20
        message = f"it needs more memory than the {limit_mib} MiB it is given"
        return Reply(refusal=("QueryError", message, "narrow it"))
    except BaseException as error:
        if not (isinstance(error, Exception) or is_rust_panic(error)):
            raise
        if (damaged := damaged_part_of(results)) is not None:
            return _refusal(damage_error(damaged))
        message = f"{type(error).__name__}: {error}"
        return Reply(refusal=("Defect", message, "this is a defect of fleetrank"))


def _refusal(error: FleetError) -> Reply:
    return Reply(refusal=(type(error).__name__, error.message, error.remedy))


if __name__ == "__main__":
    main()
