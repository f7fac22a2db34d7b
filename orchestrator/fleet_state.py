"""What the devices of a sweep do now, counted in two lines, and which a person should look at.

Displays list a small fleet device by device; a thousand lines help no one.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from fleetrank.foundation.visible_text import shortened
from fleetrank.foundation.wording import count_of

MOST_LISTED = 50
"""Devices that a display lists one by one: about two screens."""
_MOST_LOOKED_AT = 20
"""Devices of a larger fleet that it lists."""
_MOST_REASONS = 4
_MOST_ALIKE = 3
"""Devices with one reason that stand before those with others: a lost host has many devices."""
_LONGEST_REASON = 80
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")


class DeviceProgress(StrEnum):
    """What a device of a sweep does, in the order in which a line counts them."""

    MEASURING = "measuring"
    WAITING = "waiting"
    """It is not fit, or another user has it; it is asked again until its limit."""
    PENDING = "pending"
    """It has its turn later, or was not reached yet."""
    FINISHED = "finished"
    SET_ASIDE = "set aside"
    """It failed repeatedly, or its host is unavailable; it is probed until it answers."""
    LEFT_OUT = "left out"
    """It was given up; `sweep resume` measures what is left."""


OUT_OF_USE = frozenset({DeviceProgress.SET_ASIDE, DeviceProgress.LEFT_OUT})


def fleet_lines(devices: Iterable[tuple[object, object]]) -> list[str]:
    """How many devices are in each state; and the most frequent reasons, if there are any.

    Args:
        devices: of each its `DeviceProgress`, and why it waits or is out of use, or `None`.
    """
    found = list(devices)
    counts = Counter(state for state, _ in found)
    stated = ", ".join(f"{counts[one]:,} {one}" for one in DeviceProgress if counts[one])
    alike: dict[str, list[str]] = {}
    for _, reason in found:
        if isinstance(reason, str):
            alike.setdefault(_masked(reason), []).append(reason)
    common = sorted(alike.items(), key=lambda item: -len(item[1]))
    whys = [
        f"{len(same):,}: {shortened(same[0] if len({*same}) == 1 else masked, _LONGEST_REASON)}"
        for masked, same in common[:_MOST_REASONS]
    ]
    if len(common) > _MOST_REASONS:
        whys.append(count_of(len(common) - _MOST_REASONS, "other reason"))
    noun = "device" if len(found) == 1 else "devices"
    return [f"{len(found):,} {noun}: {stated}", *filter(None, ["; ".join(whys)])]


def _masked(reason: str) -> str:
    """Reasons that differ in numbers alone, such as a time, are one."""
    return _NUMBER.sub("…", reason)


def lines_of_status(devices: Iterable[Mapping[str, object]]) -> list[str]:
    """`fleet_lines` of the devices of a `SweepStatus`."""
    return fleet_lines((one["state"], one["reason"]) for one in devices)


def listed(devices: Sequence[Mapping[str, object]]) -> Sequence[Mapping[str, object]]:
    """The devices of a `SweepStatus` to list: of a large fleet those that a person should look at.

    They are out of use, have failures or wait, in this order; those with the most failures, and
    those that wait longest, come first. A reason stands a few times before others follow.
    """
    if len(devices) <= MOST_LISTED:
        return devices

    def urgency(device: Mapping[str, object]) -> tuple[bool, int, float]:
        n_failed, waited_s = device["n_failed"], device["waited_s"]
        return (
            device["state"] in OUT_OF_USE,
            n_failed if isinstance(n_failed, int) else 0,
            waited_s if isinstance(waited_s, float) else 0.0,
        )

    wanted = (*OUT_OF_USE, DeviceProgress.WAITING)
    found = [one for one in devices if one["n_failed"] or one["state"] in wanted]
    first: list[Mapping[str, object]] = []
    others: list[Mapping[str, object]] = []
    n_alike: Counter[str] = Counter()
    for one in sorted(found, key=urgency, reverse=True):
        kind = _masked(str(one["reason"]))
        n_alike[kind] += 1
        (first if n_alike[kind] <= _MOST_ALIKE else others).append(one)
    return [*first, *others][:_MOST_LOOKED_AT]
