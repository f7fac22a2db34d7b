"""One task in one fresh process: `python -P -m fleetrank.device_agents.worker`.

One line of JSON arrives on standard input, one is written to standard output. Standard input must
stay open, unless it is a file: its end means that the caller is gone, and the worker ends too.
The worker needs only NumPy and the requested runtime.
"""

import os
import sys
from typing import TYPE_CHECKING

from fleetrank.device_agents.contract.failures import failure_from_error
from fleetrank.device_agents.contract.measurement import Measurement, WorkerFacts, failed
from fleetrank.device_agents.contract.protocol import STAGE_MARK, InferReply, decode_request
from fleetrank.device_agents.contract.task import InferTask, MeasureTask
from fleetrank.device_agents.linux.worker_process import pin, shed_inheritance
from fleetrank.foundation.codec import to_json
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.own_process import (
    die_with_parent,
    exit_when_input_ends,
    keep_stdout_for_the_result,
    limit_memory,
    read_line,
    write_all,
)

if TYPE_CHECKING:
    from fleetrank.device_agents.confinement.walls import Walls

BAD_REQUEST = 2
"""Exit code if the input is not a valid task."""


def main() -> int:
    """Reads one request, executes it, writes one reply; returns the exit code."""
    die_with_parent()
    result_fd = keep_stdout_for_the_result()
    try:
        task = decode_request(read_line(0))
    except FleetError as error:
        print(error, file=sys.stderr)  # noqa: T201 - the parent keeps it as the reason
        return BAD_REQUEST
    inherited = shed_inheritance()
    reply = _answer(task, inherited, result_fd)
    write_all(result_fd, f"{to_json(reply)}\n".encode())
    # Runtimes sometimes crash while unloading; the result is already written, so skip unloading.
    sys.stderr.flush()
    os._exit(0)


def _answer(
    task: MeasureTask | InferTask, inherited: WorkerFacts, result_fd: int
) -> Measurement | InferReply:
    turns = None
    try:
        # Before the first thread: the kernel confines the calling thread and its later threads.
        walls = None if task.is_trusted else _confine(task)
        if isinstance(task, MeasureTask) and (task.blocks or task.execution.replicas) is not None:
            from fleetrank.device_agents.worker.watch import Turns

            turns = Turns(result_fd)
        exit_when_input_ends(0, None if turns is None else turns.hear)
        pin(task.execution.affinity)
        # Only now: NumPy and the runtimes choose the size of their thread pools at import.
        from fleetrank.device_agents.worker.infer import infer
        from fleetrank.device_agents.worker.measure import measure
        from fleetrank.device_agents.worker.run import Caller

        # Not earlier: an interpreter that runs out of memory during imports fails unpredictably.
        limit_memory(task.limits.memory_limit_bytes)
    except (FleetError, OSError, ValueError, ImportError, MemoryError) as error:
        failure = failure_from_error(error, "start")
        if isinstance(task, InferTask):
            return InferReply(failure=failure)
        return failed(task.task_id, failure)
    if isinstance(task, InferTask):
        return InferReply(failure=infer(task, _enter, walls))
    return measure(task, inherited, Caller(enter=_enter, turns=turns), walls)


def _confine(task: MeasureTask | InferTask) -> "Walls":
    from fleetrank.device_agents.confinement.walls import confine
    from fleetrank.device_agents.linux.scratch import scratch_of_this_worker
    from fleetrank.device_agents.linux.worker_process import reset_peak

    reset_peak()  # opens a file that the kernel would block later
    return confine(task, scratch_of_this_worker())


def _enter(stage: str) -> None:
    """Writes the stage to standard error; after a crash the parent reads the last one."""
    os.write(2, f"{STAGE_MARK} {stage}\n".encode())


if __name__ == "__main__":
    sys.exit(main())
