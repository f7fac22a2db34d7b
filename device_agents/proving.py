"""Proves fleetrank's figures on one device: bare runs and its own in turns, and the outputs.

Open to every kind whose agent is a `ProvingAgent`.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from statistics import median

from fleetrank.device_agents.comparison import compare_outputs, read_outputs
from fleetrank.device_agents.contract.agent import ProvingAgent, Say
from fleetrank.device_agents.contract.kind import HostShare, Traits
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.proof import Outputs, Proof, figure_ns, proof_of
from fleetrank.device_agents.contract.task import MeasurePolicy, MeasureTask, infer_task
from fleetrank.device_agents.linux import bare_client
from fleetrank.device_agents.linux.patience import measure_when_fit
from fleetrank.device_agents.registration import canary_latency_ns
from fleetrank.foundation.comparison import OutputComparison
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.lease import Use, host_lease
from fleetrank.foundation.temporary import temporary_folder

N_PAIRS = 5
PROOF_POLICY = MeasurePolicy(max_time_s=3.0, energy_s=0.0)
"""As of a sweep, but shorter: the canary takes a hundredth of a second."""
_ONE_RUN = MeasurePolicy(min_warmup_runs=1, min_warmup_s=0.0, min_runs=1, max_time_s=1e-9)
_USES = {HostShare.ALONE: Use.TIMES, HostShare.BESIDE: Use.BESIDE}
"""Of this host's lease while a device is measured; the others take it themselves."""


def prove(
    agent: ProvingAgent, traits: Traits, task: MeasureTask, n_pairs: int, purpose: str, say: Say
) -> Proof:
    """Measures the pairs; the order changes from pair to pair.

    Args:
        agent: of the device.
        traits: of the device: whether it gives outputs, and computes on this host.
        task: of both ways.
        n_pairs: 1 at least.
        purpose: who holds this host's lease, and why.
        say: receives lines about the progress.

    Raises:
        FleetError: a run failed.
    """
    lease = partial(host_lease, purpose, on_wait=say)
    outputs = _outputs(agent, task, lease) if traits.infers else "the device gives none"
    pairs, use = [], _USES.get(traits.share)
    with nullcontext() if use is None else lease(use=use):
        for number in range(n_pairs):
            say(f"pair {number + 1} of {n_pairs}")
            before = () if number % 2 else agent.measure_bare(task)
            seen = measure_when_fit(agent, task, say)
            latency_ns = canary_latency_ns(seen)  # raises if the run failed
            bare_ns = round(median(before or agent.measure_bare(task)))
            pairs.append((bare_ns, figure_ns(seen) or latency_ns))
    return proof_of(pairs, seen, task.execution.affinity, _compared(seen) or outputs)


def _compared(seen: Measurement) -> OutputComparison | None:
    """The outputs of a kind that compares those of each repeat; a wrong one has failed."""
    error = dict(seen.worker.settings if seen.worker else ()).get("max_relative_error")
    if not isinstance(error, float):
        return None
    return OutputComparison(max_relative_error=error, is_equal=True, reason=None)


def _outputs(
    agent: ProvingAgent, task: MeasureTask, lease: Callable[..., AbstractContextManager[bool]]
) -> Outputs:
    """The device's outputs beside those of the library alone here; or why there are none."""
    free = replace(task.execution, affinity=None)  # the cores are those of the device
    try:
        with temporary_folder("proof") as folder, lease(use=Use.WORK):
            here, there = folder / "here.npz", folder / "there.npz"
            bare_client.measure_bare(replace(task, execution=free, policy=_ONE_RUN), kept=here)
            failure = agent.infer(infer_task(task, here, there))
            if failure is not None:
                return failure.message
            return compare_outputs(read_outputs(here), read_outputs(there))
    except FleetError as error:
        return error.message
