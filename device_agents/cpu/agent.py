"""Measures on the CPU of this host, one fresh worker process per task."""

import os
from collections.abc import Mapping
from dataclasses import replace

from device_agents.agent import StopRequested, never_stop
from device_agents.cpu.topology import choose_cpus, read_facts
from device_agents.errors import PermanentError
from device_agents.hosted import infer_in_worker, measure_in_worker
from device_agents.runtimes.registry import why_unsupported
from device_agents.types import (
    DeviceFacts,
    Execution,
    Failure,
    InferTask,
    Measurement,
    MeasureTask,
    OptionValue,
)


class CpuAgent:
    """The `cpu` device kind.

    Options: `pin` (default true) pins a task without an affinity of its own to one logical CPU
    per thread, each on its own core; false leaves the choice to the system.
    """

    def __init__(self, options: Mapping[str, OptionValue]) -> None:
        for name in options:
            if name != "pin":
                raise PermanentError(f"a cpu device has no option {name!r}", "its option is: pin")
        pin = options.get("pin", True)
        if not isinstance(pin, bool):
            raise PermanentError(f"pin is {pin!r}", "set pin to true or false")
        self._pin = pin

    def probe(self) -> DeviceFacts:
        """See `Agent`."""
        return read_facts()

    def why_unsupported(self, execution: Execution) -> str | None:
        """See `Agent`."""
        usable = os.sched_getaffinity(0)
        if execution.affinity is not None and not set(execution.affinity) <= usable:
            missing = ",".join(str(cpu) for cpu in sorted(set(execution.affinity) - usable))
            return f"this host has no usable CPU {missing}"
        if execution.threads > len(usable):
            return f"{execution.threads} threads need more than the {len(usable)} usable CPUs"
        return why_unsupported(execution)

    def measure(self, task: MeasureTask, stop_requested: StopRequested = never_stop) -> Measurement:
        """See `Agent`."""
        return measure_in_worker(self._pinned(task), stop_requested)

    def infer(self, task: InferTask) -> Failure | None:
        """See `Agent`."""
        return infer_in_worker(task)

    def _pinned(self, task: MeasureTask) -> MeasureTask:
        if not self._pin or task.execution.affinity is not None:
            return task
        # With fewer cores than threads (hyper-threading) any pinning would be a worse guess.
        affinity = choose_cpus(task.execution.threads)
        return replace(task, execution=replace(task.execution, affinity=affinity))
