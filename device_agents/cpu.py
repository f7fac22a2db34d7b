"""Measures on the CPU of this host, one fresh worker process per task."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from fleetrank.device_agents.contract.agent import DeviceFacts, StopRequested, never_stop
from fleetrank.device_agents.contract.failures import failure_from_error
from fleetrank.device_agents.contract.measurement import Failure, Measurement, failed
from fleetrank.device_agents.contract.task import Execution, InferTask, MeasureTask, OptionValue
from fleetrank.device_agents.errors import NotFitError, PermanentError
from fleetrank.device_agents.linux.cpu_facts import read_facts
from fleetrank.device_agents.linux.energy import open_rapl
from fleetrank.device_agents.linux.quiet import require_quiet
from fleetrank.device_agents.linux.rails import open_rails
from fleetrank.device_agents.linux.replica_client import longest_s, measure_in_workers
from fleetrank.device_agents.linux.round_client import measure_round
from fleetrank.device_agents.linux.worker_client import WORKER, infer_in_worker, limited
from fleetrank.device_agents.runtimes.runner import why_unsupported
from fleetrank.foundation.registry import later

_MEASURE_BARE = later("fleetrank.device_agents.linux.bare_client:measure_bare")
"""By its name, so that it is not sent to boards, which never call it."""


class CpuAgent:
    """The `cpu` device kind, which has no options.

    The system chooses the CPUs of a task without an affinity.

    Args:
        options: none.
        command: starts a worker.
    """

    def __init__(
        self, options: Mapping[str, OptionValue], *, command: Sequence[str] = WORKER
    ) -> None:
        for name in options:
            raise PermanentError(f"a cpu device has no option {name!r}", "remove it")
        self._command = tuple(command)

    def probe(self) -> DeviceFacts:
        """Describes the device."""
        return read_facts()

    def why_unsupported(self, execution: Execution) -> str | None:
        """Says why this device cannot execute this, or `None` when it can."""
        usable = os.sched_getaffinity(0)
        if execution.affinity is not None and not set(execution.affinity) <= usable:
            missing = ",".join(str(cpu) for cpu in sorted(set(execution.affinity) - usable))
            return f"this host has no usable CPU {missing}"
        if execution.threads > len(usable):
            return (
                f"{execution.threads} threads need more than the {len(usable)} usable CPUs: "
                f"set `threads` to {len(usable)} at most"
            )
        return why_unsupported(execution)

    def longest_s(self, task: MeasureTask) -> float:
        """The longest time that `measure` may take, in seconds."""
        return longest_s(task)

    def measure(self, task: MeasureTask, stop_requested: StopRequested = never_stop) -> Measurement:
        """Measures one repeat, or one set."""
        run = partial(
            measure_in_workers, command=self._command, source=lambda: open_rapl() or open_rails()
        )
        (answer,) = _when_quiet([task], lambda: [run(limited(task), stop_requested)])
        return answer

    def measure_round(
        self,
        tasks: Sequence[MeasureTask],
        stop_requested: StopRequested = never_stop,
        finish_requested: StopRequested = never_stop,
    ) -> Sequence[Measurement]:
        """Measures one repeat of each task in turns."""
        tasks = [limited(task) for task in tasks]
        return _when_quiet(
            tasks,
            lambda: measure_round(tasks, stop_requested, finish_requested, command=self._command),
        )

    def measure_bare(self, task: MeasureTask) -> tuple[int, ...]:
        """Measures without fleetrank: by the runtime's library alone."""
        samples_ns: tuple[int, ...] = _MEASURE_BARE(task)
        return samples_ns

    def infer(self, task: InferTask, stop_requested: StopRequested = never_stop) -> Failure | None:
        """Runs the artifact over stored inputs and writes its outputs."""
        return infer_in_worker(limited(task), stop_requested, command=self._command)


def _when_quiet(
    tasks: Sequence[MeasureTask], measure: Callable[[], Sequence[Measurement]]
) -> Sequence[Measurement]:
    """Measures; on a busy host each task asks for time instead, if the sweep wants a quiet host."""
    quiet_s = tasks[0].quiet_s
    if quiet_s is None:
        return measure()
    try:
        require_quiet(quiet_s)
    except NotFitError as error:
        failure = failure_from_error(error, "start")
        return [failed(task.task_id, failure) for task in tasks]
    return measure()
