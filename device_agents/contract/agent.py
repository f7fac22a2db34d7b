"""The contract every kind of device fulfils; `registry.py` lists its members."""

from collections.abc import Callable
from typing import Protocol

from fleetrank.device_agents.contract.device_facts import DeviceFacts
from fleetrank.device_agents.contract.measurement import Failure, Measurement
from fleetrank.device_agents.contract.task import Execution, InferTask, MeasureTask

StopRequested = Callable[[], bool]
"""Asked between steps; `True` means end now, and the attempt becomes `interrupted`."""


def never_stop() -> bool:
    """A `StopRequested` that lets every task run to its end."""
    return False


class Agent(Protocol):
    """Drives one device. Safe to build anew at any time: it keeps no state between calls."""

    def probe(self) -> DeviceFacts:
        """Says what the device is.

        Raises:
            TransientError: the device does not answer; try again later.
            PermanentError: the device cannot be used; the remedy says what is missing.
        """
        ...

    def why_unsupported(self, execution: Execution) -> str | None:
        """Says why this device cannot execute so, or `None` when it can; no I/O on the device."""
        ...

    def longest_s(self, task: MeasureTask) -> float:
        """How long `measure` may take, the agent's own waiting included.

        Whoever hears nothing for longer takes the device for lost.
        """
        ...

    def measure(self, task: MeasureTask, stop_requested: StopRequested = never_stop) -> Measurement:
        """Measures one repeat, in a fresh process where anything is really executed.

        Every expected failure (crash, time-out, garbage, refusal) comes back as a measurement
        with status `failed`; nothing is raised for it.
        """
        ...

    def infer(self, task: InferTask) -> Failure | None:
        """Runs the artifact over stored inputs and writes its outputs; `None` means done."""
        ...
