"""The contract that every device kind fulfils; `registry.py` lists the kinds."""

from collections.abc import Callable
from typing import Protocol

from fleetrank.device_agents.contract.device_facts import DeviceFacts
from fleetrank.device_agents.contract.measurement import Failure, Measurement
from fleetrank.device_agents.contract.task import Execution, InferTask, MeasureTask

StopRequested = Callable[[], bool]
"""Checked between steps; `True` means stop now, and the attempt becomes `interrupted`."""


def never_stop() -> bool:
    """A `StopRequested` that never stops a task."""
    return False


class Agent(Protocol):
    """Drives one device. It keeps no state between calls and can be created again at any time."""

    def probe(self) -> DeviceFacts:
        """Describes the device.

        Raises:
            TransientError: the device does not answer; try again later.
            PermanentError: the device cannot be used; the remedy says what is missing.
        """
        ...

    def why_unsupported(self, execution: Execution) -> str | None:
        """Says why this device cannot execute this, or `None` if it can; no I/O on the device."""
        ...

    def longest_s(self, task: MeasureTask) -> float:
        """The longest time that `measure` may take, in seconds, with the agent's own waiting.

        If no answer arrives within this time, the caller treats the device as lost.
        """
        ...

    def measure(self, task: MeasureTask, stop_requested: StopRequested = never_stop) -> Measurement:
        """Measures one repeat; code that executes the model runs in a fresh process.

        Every expected failure (crash, timeout, invalid output, rejection) is returned as a
        measurement with status `failed`; no exception is raised for it.
        """
        ...

    def infer(self, task: InferTask) -> Failure | None:
        """Runs the artifact over stored inputs and writes its outputs; `None` means success."""
        ...
