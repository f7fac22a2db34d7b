"""Runs the canary model on a phone to test its repeatability and find its delegates."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fleetrank.device_agents.android.agent import AndroidAgent
from fleetrank.device_agents.android.execution.program_run import CANARY_BACKEND, canary_task
from fleetrank.device_agents.android.options import read_options
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.registration import CanaryFile, Say
from fleetrank.device_agents.contract.task import MeasureTask, OptionValue
from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.foundation.vocabulary import Status

PROGRAM = "benchmark_model"
N_RUNS = 2
DELEGATES = ("gpu", "nnapi")
"""Backends of the program that a phone may lack; the CPU backends always exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneTrial:
    """The inputs of a trial.

    Attributes:
        options: options of the phone's agent.
        affinity: CPUs to pin it to.
    """

    options: Mapping[str, OptionValue]
    canary: CanaryFile
    affinity: tuple[int, ...] | None
    say: Say

    def latencies_ns(self) -> tuple[int, ...]:
        """Medians of the canary's runs, each in its own process.

        Raises:
            FleetError: the canary cannot be measured on this phone.
        """
        _, rules = read_options(self.options)
        latencies_ns = []
        for number in range(1, N_RUNS + 1):
            self.say(
                f"canary {number} of {N_RUNS}; "
                f"waiting up to {rules.max_wait_s:g} s for the phone to be ready"
            )
            latencies_ns.append(_latency_ns(self._measure(str(number), CANARY_BACKEND)))
        return tuple(latencies_ns)

    def delegates(self) -> str:
        """Delegates that execute part of the canary, with the share of its nodes: `gpu 100%`."""
        found = []
        for backend in DELEGATES:
            self.say(f"canary with the {backend} delegate")
            measurement = self._measure(backend, backend)
            if measurement.status is not Status.OK or measurement.worker is None:
                continue
            share = dict(measurement.worker.settings).get("delegate_node_share")
            found.append(backend if share is None else f"{backend} {float(share):.0%}")
        return ", ".join(found) or "none"

    def _measure(self, name: str, backend: str) -> Measurement:
        task = canary_task(self.canary.path, self.canary.sha256, self.affinity, f"canary/{name}")
        return AndroidAgent(self.options).measure(_with_backend(task, backend))


def _with_backend(task: MeasureTask, backend: str) -> MeasureTask:
    return replace(task, execution=replace(task.execution, backend=backend))


def _latency_ns(measurement: Measurement) -> int:
    if measurement.failure is not None:
        failure = measurement.failure
        raise UnsupportedError(f"the canary did not run: {failure.message}", failure.remedy)
    if measurement.status is not Status.OK or measurement.summary is None:
        raise UnsupportedError("the canary reported no latency", "check the program's output")
    return measurement.summary.median_ns
