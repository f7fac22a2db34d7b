"""What has changed about a registered phone since it was registered."""

from dataclasses import dataclass

from device_agents.android.readiness import PhoneRules
from device_agents.android.validity import CanaryReading, is_canary_off
from orchestrator.device_registry import DeviceFile, Registration

MAX_SPREAD = 0.10
"""Between two runs of the canary: beyond it the phone does not repeat itself well enough for a
ratio of 10 %, which is what a cell's canary is judged by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One fact, as registered and as found now; `meaning` says what it does to measurements."""

    fact: str
    registered: object
    now: object
    meaning: str


def changes_between(before: DeviceFile, after: DeviceFile) -> tuple[Change, ...]:
    """Compares two registrations of one phone: facts, programs, canary. Pure."""
    old = before.registration or Registration()
    new = after.registration or Registration()
    return (
        *_changed_facts(old, new),
        *_changed_programs(before, after),
        *_changed_canary(old, new),
    )


def _changed_facts(old: Registration, new: Registration) -> list[Change]:
    names = dict.fromkeys((*old.facts, *new.facts))
    return [
        Change(
            fact=name,
            registered=old.facts.get(name),
            now=new.facts.get(name),
            meaning="the phone's system is another: compare new sweeps with new ones",
        )
        for name in names
        if old.facts.get(name) != new.facts.get(name)
    ]


def _changed_programs(before: DeviceFile, after: DeviceFile) -> list[Change]:
    names = dict.fromkeys((*before.options, *after.options))
    return [
        Change(
            fact=name,
            registered=before.options.get(name),
            now=after.options.get(name),
            meaning="sweeps begun before cannot be resumed with it",
        )
        for name in names
        if before.options.get(name) != after.options.get(name)
    ]


def _changed_canary(old: Registration, new: Registration) -> list[Change]:
    changes = []
    if old.canary_latency_ns and new.canary_latency_ns:
        mean_old = sum(old.canary_latency_ns) / len(old.canary_latency_ns)
        mean_new = sum(new.canary_latency_ns) / len(new.canary_latency_ns)
        reading = CanaryReading(ratio=mean_new / mean_old, spread=old.canary_spread)
        if is_canary_off(reading, PhoneRules()):
            changes.append(
                Change(
                    fact="canary_latency_ns",
                    registered=round(mean_old),
                    now=round(mean_new),
                    meaning="cells will be refused until it is registered again, or has rested",
                )
            )
    if new.canary_spread is not None and new.canary_spread > MAX_SPREAD:
        changes.append(
            Change(
                fact="canary_spread",
                registered=_rounded(old.canary_spread),
                now=_rounded(new.canary_spread),
                meaning="it repeats itself badly: let it rest, close its programs",
            )
        )
    return changes


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 3)
