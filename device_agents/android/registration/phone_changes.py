"""What differs between two registrations of one phone; pure functions."""

from collections.abc import Iterator, Mapping
from statistics import fmean

from fleetrank.device_agents.android.state.fitness import CanaryReading, PhoneRules, is_canary_off
from fleetrank.device_agents.contract.registration import Change, RegisteredDevice, RegistrationData

MAX_SPREAD = 0.10
"""Largest accepted spread between canary runs: with more, the phone is not repeatable enough for
the 10 % ratio that a cell's canary is checked against."""


def changes_between(before: RegisteredDevice, after: RegisteredDevice) -> tuple[Change, ...]:
    """Compares two registrations of one phone: facts, programs, clusters, canary."""
    old, new = before.registration, after.registration
    return (
        *_differences(
            old.facts,
            new.facts,
            "the phone's system has changed: compare only sweeps measured after the change",
        ),
        *_differences(
            _compared(before, before),
            _compared(after, before),
            "sweeps that started earlier cannot be resumed with it",
        ),
        *_changed_cap(before, after),
        *_changed_clusters(old, new),
        *_changed_canary(old, new),
    )


def _differences(
    old: Mapping[str, object], new: Mapping[str, object], meaning: str
) -> Iterator[Change]:
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) != new.get(name):
            yield Change(fact=name, registered=old.get(name), now=new.get(name), meaning=meaning)


_CAP = "load_cap_mhz"


_UNIT = "unit_hash"


def _compared(device: RegisteredDevice, before: RegisteredDevice) -> Mapping[str, object]:
    """The options, without those that older versions did not store."""
    left_out = {_CAP} if _UNIT in before.options else {_CAP, _UNIT}
    return {name: value for name, value in device.options.items() if name not in left_out}


def _changed_cap(before: RegisteredDevice, after: RegisteredDevice) -> list[Change]:
    old, new = before.options.get(_CAP), after.options.get(_CAP)
    if not isinstance(old, float | int) or not isinstance(new, float | int):
        return []
    if new >= PhoneRules().min_cap_share * old:
        return []
    meaning = "its clocks are limited under load: let it cool down, switch its battery saver off"
    return [Change(fact=_CAP, registered=old, now=new, meaning=meaning)]


def _changed_clusters(old: RegistrationData, new: RegistrationData) -> list[Change]:
    if old.clusters == new.clusters:
        return []
    return [
        Change(
            fact="clusters",
            registered=_shown_clusters(old),
            now=_shown_clusters(new),
            meaning="repeats are pinned to the registered cores: register the phone again",
        )
    ]


def _shown_clusters(data: RegistrationData) -> str | None:
    return " + ".join(",".join(map(str, cores)) for cores in data.clusters) or None


def _changed_canary(old: RegistrationData, new: RegistrationData) -> list[Change]:
    changes = []
    if old.canary_latency_ns and new.canary_latency_ns:
        mean_old, mean_new = fmean(old.canary_latency_ns), fmean(new.canary_latency_ns)
        reading = CanaryReading(ratio=mean_new / mean_old, spread=old.canary_spread)
        if is_canary_off(reading, PhoneRules()):
            changes.append(
                Change(
                    fact="canary_latency_ns",
                    registered=round(mean_old),
                    now=round(mean_new),
                    meaning="measurements are rejected until it cools down or is registered again",
                )
            )
    if new.canary_spread is not None and new.canary_spread > MAX_SPREAD:
        changes.append(
            Change(
                fact="canary_spread",
                registered=_rounded(old.canary_spread),
                now=_rounded(new.canary_spread),
                meaning="its results vary too much: let it cool down and close its programs",
            )
        )
    return changes


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 3)
