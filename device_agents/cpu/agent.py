"""Measures on the CPU of this host, one fresh worker process per task."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from fleetrank.device_agents.contract.agent import DeviceFacts, StopRequested, never_stop
from fleetrank.device_agents.contract.measurement import Failure, Measurement
from fleetrank.device_agents.contract.task import Execution, InferTask, MeasureTask, OptionValue
from fleetrank.device_agents.errors import PermanentError
from fleetrank.device_agents.host.topology import read_facts
from fleetrank.device_agents.host.worker_client import infer_in_worker, measure_in_worker
from fleetrank.device_agents.host.worker_process import default_limit_bytes
from fleetrank.device_agents.runtimes.runner import why_unsupported

Task = TypeVar("Task", MeasureTask, InferTask)


class CpuAgent:
    """The `cpu` device kind, which has no options.

    The system chooses the CPUs of a task without an affinity.
    """

    def __init__(self, options: Mapping[str, OptionValue]) -> None:
        for name in options:
            raise PermanentError(f"a cpu device has no option {name!r}", "remove it")

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
        return task.timeout_s

    def measure(self, task: MeasureTask, stop_requested: StopRequested = never_stop) -> Measurement:
        """Measures one repeat."""
        return measure_in_worker(_limited(task), stop_requested)

    def infer(self, task: InferTask) -> Failure | None:
        """Runs the artifact over stored inputs and writes its outputs."""
        return infer_in_worker(_limited(task))


def _limited(task: Task) -> Task:
    """Limits memory: a model that uses all memory must fail alone and not stop the host."""
    if task.memory_limit_bytes is not None:
        return task
    return replace(task, memory_limit_bytes=default_limit_bytes())
