"""The messages between the control loop and `step`: events go in, actions come out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fleetrank.device_agents.contract.agent import DeviceFacts
from fleetrank.device_agents.contract.measurement import Failure, Measurement, Wait
from fleetrank.device_agents.contract.task import MeasureTask
from fleetrank.orchestrator.dispatch.decide.lane import Lane
from fleetrank.orchestrator.dispatch.decide.notices import waits
from fleetrank.orchestrator.dispatch.decide.work import SweepWork
from fleetrank.orchestrator.identity import Attempt
from fleetrank.orchestrator.progress_events import (
    DecisionsMade,
    DeviceWaits,
    Notice,
    PowerCycled,
    RepeatStarted,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    """What every event has: seconds of a monotonic clock."""

    now_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Began(_Moment):
    """The first event of a run.

    Attributes:
        in_flight: tasks that an earlier driver left running, from task id to device.
        offered: measurements that an earlier driver did not acknowledge.
    """

    in_flight: Mapping[str, str] = field(default_factory=dict)
    offered: Sequence[Measurement] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived(_Moment):
    """A wait for measurements has ended; empty if none arrived.

    A lost host is a failed measurement of kind `host_lost` for each of its running tasks; an
    answered probe of its devices means that it is back.
    """

    measurements: Sequence[Measurement]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed(_Moment):
    """A device has answered its probe with its facts, or the probe failed."""

    device: str
    answer: DeviceFacts | Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class HostJoined(_Moment):
    """A host answers that did not answer before."""

    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Switched(_Moment):
    """A device was switched off and on, or `error` says why not."""

    device: str
    error: str | None


class Tick(_Moment):
    """Time has passed; comes once in each round of the control loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopPressed(_Moment):
    """The user requested a stop, `is_now` without waiting; may come again in each round."""

    is_now: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFailed(_Moment):
    """The disk is full or cannot be written; the row stays in memory."""

    message: str


class Synced(_Moment):
    """Every row stored so far is safe from a power cut."""


class Ended(_Moment):
    """The last event of a run: the loop has ended, and late results are decided."""


Event = (
    Began | Arrived | Probed | HostJoined | Switched | Tick | StopPressed | StoreFailed | Synced
    | Ended
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """Starts a task on a device that has no running task."""

    device: str
    task: MeasureTask


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """Stores one attempt as a row and reports its end.

    Attributes:
        facts: `None` if no probe of the device was answered.
        will_retry: another attempt at the repeat follows, or the repeat was counted before.
    """

    device: str
    attempt: Attempt
    measurement: Measurement
    facts: DeviceFacts | None
    will_retry: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUntried:
    """Stores an attempt that fails without being started, on the device of its cell."""

    attempt: Attempt
    failure: Failure
    facts: DeviceFacts | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Probes a device that is set aside; the answer returns as `Probed`."""

    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CyclePower:
    """Switches a device off and on, on which nothing runs; the end returns as `Switched`."""

    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Announce:
    """Reports progress to the user."""

    event: RepeatStarted | DeviceWaits | PowerCycled | DecisionsMade | Notice


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """Syncs the stored rows; success returns as `Synced`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """Publishes the stored rows to readers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledge:
    """Lets the hosts delete these measurements: each is safe in a synced row, or discarded."""

    task_ids: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishRounds:
    """Ends running rounds after their current blocks; other running tasks go on to their end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupt:
    """Ends the running tasks now; each returns as a failure of kind `interrupted`."""


Action = (
    Submit | Store | StoreUntried | Probe | CyclePower | Announce | Sync | Publish | Acknowledge
    | FinishRounds | Interrupt
)  # fmt: skip


def of_repeat(work: SweepWork, device: str, attempt: Attempt) -> dict[str, Any]:
    """What events say of an attempt on a device."""
    place = work.places[device]
    return {
        "device": device,
        "host": place.host,
        "label": attempt.repeat.cell.label,
        "repeat": attempt.repeat.index,
        "attempt": attempt.number,
        "origin": place.origin,
    }


def waits_for_user(lane: Lane, failure: Failure, wait: Wait, now_s: float) -> DeviceWaits:
    """A device that answered its probe: another user has it."""
    until_s = now_s if lane.awaited_until_s is None else lane.awaited_until_s
    return replace(
        waits(lane, failure.message, now_s),
        waited_s=max(0.0, now_s - (until_s - wait.limit_s)),
        limit_s=wait.limit_s,
    )
