"""What has changed on a device since it was registered."""

from collections.abc import Iterator, Mapping
from statistics import fmean

from fleetrank.device_agents.contract.kind import (
    FactChange,
    RegisteredDevice,
    Registrar,
    RegistrationData,
)
from fleetrank.device_agents.contract.task import deviates
from fleetrank.foundation.cpus import kinds_text

MAX_SPREAD = 0.10
"""Largest accepted spread between canary runs: with more, the device is not repeatable enough for
the ratio that a cell's canary is checked against."""


def changes_between(
    registrar: Registrar, before: RegisteredDevice, after: RegisteredDevice
) -> tuple[FactChange, ...]:
    """What differs between two registrations of one device, and what it means."""
    return tuple(_changes(registrar, before, after))


def _changes(
    registrar: Registrar, before: RegisteredDevice, after: RegisteredDevice
) -> Iterator[FactChange]:
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
            yield FactChange(fact=name, registered=then, now=now, meaning=meaning)
    yield from _differences(
        {"clusters": _shown(old)},
        {"clusters": _shown(new)},
        "repeats are pinned to the registered cores: register the device again",
    )
    if old.canary_latency_ns and new.canary_latency_ns:
        mean_old, mean_new = fmean(old.canary_latency_ns), fmean(new.canary_latency_ns)
        tolerance = registrar.canary_tolerance(before.options)
        if deviates(mean_new / mean_old, old.canary_spread, tolerance):
            yield FactChange(
                fact="canary_latency_ns",
                registered=round(mean_old),
                now=round(mean_new),
                meaning="measurements are rejected until it cools down or is registered again",
            )
    if new.canary_spread is not None and new.canary_spread > MAX_SPREAD:
        yield FactChange(
            fact="canary_spread",
            registered=None if old.canary_spread is None else round(old.canary_spread, 3),
            now=round(new.canary_spread, 3),
            meaning="its results vary too much: let it cool down and close its programs",
        )


def _differences(
    old: Mapping[str, object], new: Mapping[str, object], meaning: str
) -> Iterator[FactChange]:
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) != new.get(name):
            yield FactChange(
                fact=name, registered=old.get(name), now=new.get(name), meaning=meaning
            )


def _shown(data: RegistrationData) -> str | None:
    return kinds_text(data.clusters)
