"""Runs the canary model on a phone to test its repeatability and find its delegates."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fleetrank.device_agents.android.agent import AndroidAgent
from fleetrank.device_agents.android.execution.program_run import CANARY_BACKEND, canary_task
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.registration import CanaryFile, Say
from fleetrank.device_agents.contract.task import MeasureTask, OptionValue
from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.device_agents.host.patience import measure_when_fit
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
        external: backends of the external delegates that were given with the program.
    """

    options: Mapping[str, OptionValue]
    canary: CanaryFile
    affinity: tuple[int, ...] | None
    say: Say
    external: tuple[str, ...] = ()

    def run_canary(self) -> tuple[tuple[int, ...], float | None]:
        """Medians of the canary's runs, each in its own process, and the highest clock cap.

        The cap is that under load, in MHz; `None` if the phone reports none.

        Raises:
            FleetError: the canary cannot be measured on this phone.
        """
        latencies_ns, caps_mhz = [], []
        for number in range(1, N_RUNS + 1):
            self.say(f"canary {number} of {N_RUNS}")
            measurement = self._measure(str(number), CANARY_BACKEND)
            latencies_ns.append(_latency_ns(measurement))
            seen = measurement.conditions_after
            if seen is not None and seen.clock_cap_mhz is not None:
                caps_mhz.append(seen.clock_cap_mhz)
        return tuple(latencies_ns), max(caps_mhz, default=None)

    def delegates(self) -> str:
        """Delegates that execute part of the canary, with the share of its nodes: `gpu 100%`."""
        found = []
        for backend in (*DELEGATES, *self.external):
            self.say(f"canary with the {backend} delegate")
            measurement = self._measure(backend, backend)
            if measurement.status is not Status.OK or measurement.worker is None:
                continue
            share = dict(measurement.worker.settings).get("delegate_node_share")
            found.append(backend if share is None else f"{backend} {float(share):.0%}")
        return ", ".join(found) or "none"

    def _measure(self, name: str, backend: str) -> Measurement:
        task = canary_task(self.canary.path, self.canary.sha256, self.affinity, f"canary/{name}")
        return measure_when_fit(AndroidAgent(self.options), _with_backend(task, backend), self.say)


def _with_backend(task: MeasureTask, backend: str) -> MeasureTask:
    return replace(task, execution=replace(task.execution, backend=backend))


def _latency_ns(measurement: Measurement) -> int:
    if measurement.failure is not None:
        failure = measurement.failure
        raise UnsupportedError(f"the canary did not run: {failure.message}", failure.remedy)
    if measurement.status is not Status.OK or measurement.summary is None:
        raise UnsupportedError("the canary reported no latency", "check the program's output")
    return measurement.summary.latency_ns
