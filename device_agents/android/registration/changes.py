"""Compares a registered phone with its registration."""

from collections.abc import Iterator, Mapping
from statistics import fmean

from fleetrank.device_agents.android.state.readiness import PhoneRules
from fleetrank.device_agents.android.state.validity import CanaryReading, is_canary_off
from fleetrank.device_agents.contract.registration import Change, RegisteredDevice, RegistrationData

MAX_SPREAD = 0.10
"""Largest accepted spread between canary runs: with more, the phone is not repeatable enough for
the 10 % ratio that a cell's canary is checked against."""


def changes_between(before: RegisteredDevice, after: RegisteredDevice) -> tuple[Change, ...]:
    """Compares two registrations of one phone: facts, programs, canary. Pure."""
    old, new = before.registration, after.registration
    return (
        *_differences(
            old.facts,
            new.facts,
            "the phone's system has changed: compare only sweeps measured after the change",
        ),
        *_differences(
            before.options, after.options, "sweeps that started earlier cannot be resumed with it"
        ),
        *_changed_canary(old, new),
    )


def _differences(
    old: Mapping[str, object], new: Mapping[str, object], meaning: str
) -> Iterator[Change]:
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) != new.get(name):
            yield Change(fact=name, registered=old.get(name), now=new.get(name), meaning=meaning)


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
