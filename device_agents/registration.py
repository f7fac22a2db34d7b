"""The registration of a device: what its kind found, the canary, and the comparison with before.

`orchestrator.workspace.device_registry` decides the name and writes the file.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from statistics import fmean

from fleetrank.device_agents.contract.agent import Say
from fleetrank.device_agents.contract.kind import (
    Applicant,
    CanaryFile,
    CanaryPlan,
    Change,
    RegisteredDevice,
    Registrar,
    RegistrationData,
)
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.task import OptionValue, canary_task, deviates
from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.device_agents.host.worker_client import measure_when_fit
from fleetrank.foundation.cpus import kinds_text
from fleetrank.foundation.vocabulary import Status

N_CANARIES = 2
MAX_SPREAD = 0.10
"""Largest accepted spread between canary runs: with more, the device is not repeatable enough for
the ratio that a cell's canary is checked against."""


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
        small=tuple(
            cpu for cluster in applicant.clusters if cluster.is_small for cpu in cluster.cores
        ),
    )
    plan = applicant.canary(options)
    if plan is None:
        return data
    file = canary()
    seen = []
    for number in range(1, N_CANARIES + 1):
        say(f"canary {number} of {N_CANARIES}")
        seen.append(_measure(plan, file, data, say))
    data = replace(data, canary_latency_ns=tuple(map(_latency_ns, seen)))
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
    plan: CanaryPlan,
    file: CanaryFile,
    data: RegistrationData,
    say: Say,
    backend: str | None = None,
) -> Measurement:
    task = canary_task(file.path, file.sha256, data.canary_affinity, plan.policy, plan.timeout_s)
    if backend is not None:
        task = replace(task, execution=replace(task.execution, backend=backend))
    return measure_when_fit(plan.agent, task, say)


def _latency_ns(seen: Measurement) -> int:
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


def changes_between(
    registrar: Registrar, before: RegisteredDevice, after: RegisteredDevice
) -> tuple[Change, ...]:
    """What differs between two registrations of one device, and what it means."""
    return tuple(_changes(registrar, before, after))


def _changes(
    registrar: Registrar, before: RegisteredDevice, after: RegisteredDevice
) -> Iterator[Change]:
    old, new = before.registration, after.registration
    yield from _differences(
        old.facts,
        new.facts,
        "the device has changed: compare only sweeps measured after the change",
    )
    least = registrar.least_shares
    yield from _differences(
        {name: value for name, value in before.options.items() if name not in least},
        {name: value for name, value in after.options.items() if name not in least},
        "repeats are judged by the registered value, and sweeps that started earlier cannot be "
        "resumed with another: register it again",
    )
    for name, share in least.items():
        then, now = before.options.get(name), after.options.get(name)
        if not isinstance(then, float | int) or not isinstance(now, float | int):
            continue
        if now < share * then:
            meaning = "its clocks are limited under load: let it cool down, switch savers off"
            yield Change(fact=name, registered=then, now=now, meaning=meaning)
    yield from _differences(
        {"clusters": _shown(old)},
        {"clusters": _shown(new)},
        "repeats are pinned to the registered cores: register the device again",
    )
    if old.canary_latency_ns and new.canary_latency_ns:
        mean_old, mean_new = fmean(old.canary_latency_ns), fmean(new.canary_latency_ns)
        tolerance = registrar.canary_tolerance(before.options)
        if deviates(mean_new / mean_old, old.canary_spread, tolerance):
            yield Change(
                fact="canary_latency_ns",
                registered=round(mean_old),
                now=round(mean_new),
                meaning="measurements are rejected until it cools down or is registered again",
            )
    if new.canary_spread is not None and new.canary_spread > MAX_SPREAD:
        yield Change(
            fact="canary_spread",
            registered=None if old.canary_spread is None else round(old.canary_spread, 3),
            now=round(new.canary_spread, 3),
            meaning="its results vary too much: let it cool down and close its programs",
        )


def _differences(
    old: Mapping[str, object], new: Mapping[str, object], meaning: str
) -> Iterator[Change]:
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) != new.get(name):
            yield Change(fact=name, registered=old.get(name), now=new.get(name), meaning=meaning)


def _shown(data: RegistrationData) -> str | None:
    return kinds_text(data.clusters)
