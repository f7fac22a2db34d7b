"""The canary of a registration: a small model, measured some times.

`orchestrator.workspace.device_registry` decides the name and writes the file.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from fleetrank.device_agents.contract.agent import Say
from fleetrank.device_agents.contract.kind import (
    Applicant,
    CanaryFile,
    CanaryPlan,
    RegistrationData,
)
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.task import OptionValue, canary_task
from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.device_agents.linux.patience import measure_when_fit
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.vocabulary import Status

N_CANARIES = 2


def try_out(
    applicant: Applicant,
    options: Mapping[str, OptionValue],
    canary: Callable[[], CanaryFile],
    say: Say,
) -> RegistrationData:
    """Measures how well a device repeats itself, and which delegates it has.

    Args:
        applicant: the device.
        options: of its agent.
        canary: called only if the device can run it.
        say: receives lines about the progress.

    Raises:
        FleetError: the canary cannot be measured.
    """
    data = RegistrationData(
        registered_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        facts=applicant.facts,
        clusters=tuple(cluster.cores for cluster in applicant.clusters),
        small=tuple(cpu for one in applicant.clusters if one.is_small for cpu in one.cores),
    )
    plan = applicant.canary(options)
    if plan is None:
        return data
    try:
        file = canary()
    except FleetError as error:
        if not plan.is_optional:
            raise
        say(f"without a canary: {error.message}")
        return data
    seen = []
    for number in range(1, N_CANARIES + 1):
        say(f"canary {number} of {N_CANARIES}")
        seen.append(_measure(plan, file, data, say))
    data = replace(data, canary_latency_ns=tuple(map(canary_latency_ns, seen)))
    if plan.delegates is not None:
        found: list[str] = []
        for backend in plan.delegates:
            say(f"canary with the {backend} delegate")
            found += _delegate(backend, _measure(plan, file, data, say, backend))
        data = replace(data, facts={**data.facts, "delegates": ", ".join(found) or "none"})
    caps = [one.conditions_after.clock_cap_mhz for one in seen if one.conditions_after is not None]
    known = [cap for cap in caps if cap is not None]
    if plan.cap_option is not None and known:
        data = replace(data, options={plan.cap_option: max(known)})
    return data


def _measure(
    plan: CanaryPlan, file: CanaryFile, data: RegistrationData, say: Say, backend: str | None = None
) -> Measurement:
    task = canary_task(file.path, file.sha256, data.canary_affinity, plan.policy, plan.timeout_s)
    if backend is not None:
        task = replace(task, execution=replace(task.execution, backend=backend))
    return measure_when_fit(plan.agent, task, say)


def canary_latency_ns(seen: Measurement) -> int:
    """The latency of one run of the canary.

    Raises:
        UnsupportedError: it has none; names the failure.
    """
    if seen.failure is not None:
        raise UnsupportedError(
            f"the canary did not run: {seen.failure.message}", seen.failure.remedy
        )
    if seen.latency_ns is None:
        raise UnsupportedError("the canary reported no latency", "check the program's output")
    return seen.latency_ns


def _delegate(backend: str, seen: Measurement) -> Iterator[str]:
    """A delegate that executes part of the canary, with the share of its nodes: `gpu 100%`."""
    if seen.status is Status.OK and seen.worker is not None:
        share = dict(seen.worker.settings).get("delegate_node_share")
        yield backend if share is None else f"{backend} {float(share):.0%}"
