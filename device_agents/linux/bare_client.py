"""Measures without fleetrank: the runtime's library alone, in a plain Python."""

import glob
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from fleetrank.device_agents.contract.task import MeasureTask
from fleetrank.device_agents.errors import (
    BadOutputError,
    CrashedError,
    TransientError,
    UnsupportedError,
)
from fleetrank.device_agents.linux import bare_loop
from fleetrank.foundation.codec import CodecError, from_json
from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.supervised_child import ChildEnd, End, exit_name, run_child
from fleetrank.foundation.vocabulary import Runtime

PROGRAM = Path(bare_loop.__file__)
_TAIL = 300


def measure_bare(task: MeasureTask, kept: Path | None = None) -> tuple[int, ...]:
    """Times a file on this host in a child that imports the runtime's library alone.

    Args:
        task: its file, threads, CPUs and policy.
        kept: where it writes its inputs and outputs; `None` keeps none.

    Raises:
        FleetError: as of `arguments_of` and `samples_of`.
    """
    argument = arguments_of(task, glob.escape(task.artifact_path), kept)
    end = run_plain((sys.executable, "-I", str(PROGRAM), argument), task)
    return samples_of(end)


def run_plain(
    command: Sequence[str], task: MeasureTask, environment: Mapping[str, str] | None = None
) -> ChildEnd:
    """Runs a program of the bare way here, within the task's time limit."""
    with failing_as(TransientError, f"{command[0]} cannot start", "free memory here", OSError):
        limit_s = task.limits.timeout_s
        return run_child(command, None, timeout_s=limit_s, environment=environment)


def arguments_of(task: MeasureTask, pattern: str, kept: Path | None = None) -> str:
    """The argument of `bare_loop`.

    Raises:
        UnsupportedError: the task is not one that it can run.
    """
    execution, policy = task.execution, task.policy
    if (execution.runtime, execution.backend) != (Runtime.TFLITE, "xnnpack"):
        said = f"no bare way to run {execution.runtime} with {execution.backend}"
        raise UnsupportedError(said, "use a TFLite file with xnnpack")
    return json.dumps({
        "pattern": pattern, "threads": execution.threads, "cpus": execution.affinity,
        "warmup": [policy.min_warmup_runs, policy.min_warmup_s, policy.max_warmup_s],
        "timed": [policy.min_runs, max(1.0, policy.min_observed_s), policy.max_time_s],
        "kept": "" if kept is None else str(kept),
    })  # fmt: skip


def require_end(end: ChildEnd) -> None:
    """Checks that a bare run ended by itself.

    Raises:
        TransientError: it was stopped, reached its time limit or printed too much.
    """
    if end.end is not End.ITSELF:
        raise TransientError(f"the bare run was ended: {end.end.value}", "run the command again")


def samples_of(end: ChildEnd) -> tuple[int, ...]:
    """The times that `bare_loop` printed.

    Raises:
        CrashedError: it failed, such as for want of the library.
        BadOutputError: it printed no times.
        TransientError: as of `require_end`.
    """
    require_end(end)
    said = " ".join((end.stderr or end.stdout).split())[-_TAIL:]
    remedy = "check that `import ai_edge_litert` works in that Python"
    if end.exit_code != 0:
        raise CrashedError(f"the bare run ended with {exit_name(end.exit_code)}: {said}", remedy)
    message = f"the bare run printed no times, but: {said}"
    with failing_as(BadOutputError, message, remedy, CodecError, ValueError):
        samples = from_json(tuple[int, ...], end.stdout.strip().rpartition("\n")[2])
        if min(samples) <= 0:
            raise ValueError(min(samples))
    return samples
