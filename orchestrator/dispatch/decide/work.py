"""The input of the dispatcher: the plan, the files, and the tasks made from them."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.device_agents.contract.task import CanaryTask, MeasureTask
from fleetrank.foundation.vocabulary import Format
from fleetrank.models.cards.card import Artifact, ExportRequest
from fleetrank.orchestrator.dispatch.decide.lane import Lane
from fleetrank.orchestrator.identity.cells import Attempt, DevicePlace, Plan, SweepFacts
from fleetrank.orchestrator.identity.keys import TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepWork:
    """The constant input of a controller.

    Attributes:
        artifacts: the artifact of every cell whose export succeeded.
        failures: the failure of every other cell.
        primers: tiny files that warm up a runtime before memory is counted.
        canaries: the canary of each phone, by device name.
        is_trusted: the user declared that files from outside are trusted.
    """

    sweep: SweepFacts
    plan: Plan
    places: Mapping[str, DevicePlace]
    artifacts: Mapping[ExportRequest, Artifact]
    failures: Mapping[ExportRequest, Failure]
    primers: Mapping[Format, Artifact]
    canaries: Mapping[str, CanaryTask] = field(default_factory=dict)
    is_trusted: bool = False


def task_of(work: SweepWork, attempt: Attempt, canary: CanaryTask | None = None) -> MeasureTask:
    """Returns the task of one attempt; only for cells that have an artifact."""
    cell, plan = attempt.repeat.cell, work.plan
    artifact = work.artifacts[cell.export]
    primer = work.primers.get(cell.export.format)
    cost = artifact.cost
    has_cost = cost.macs is not None and cost.parameters is not None
    return MeasureTask(
        task_id=task_id_of(work, attempt),
        artifact_path=artifact.path,
        artifact_sha256=artifact.sha256,
        execution=cell.execution,
        is_trusted=artifact.is_trusted or work.is_trusted,
        primer_path=None if primer is None else primer.path,
        seed=_seed(plan.seed, attempt),
        policy=plan.policy,
        timeout_s=plan.timeout_s,
        memory_limit_bytes=plan.memory_limit_bytes,
        macs_and_parameters=(cost.macs or 0, cost.parameters or 0) if has_cost else None,
        canary=canary,
    )


def canary_of(work: SweepWork, lane: Lane) -> CanaryTask | None:
    """Returns the canary of the attempt that a lane just started; `None` if no canary is due.

    It runs before a device's first attempt, every `canary_every` repeats, and after the last
    attempt, when no other is pending. If the last attempt fails, its retry has a canary again.
    """
    canary = work.canaries.get(lane.device)
    if canary is None:
        return None
    runs_before = (lane.n_started - 1) % work.plan.canary_every == 0
    runs_after = lane.fresh is None and not lane.retries
    if not (runs_before or runs_after):
        return None
    return replace(canary, runs_before=runs_before, runs_after=runs_after)


def task_id_of(work: SweepWork, attempt: Attempt) -> str:
    """Returns the id of an attempt's task."""
    repeat = attempt.repeat
    task_id = TaskId(
        sweep_id=work.sweep.sweep_id,
        cell_key=repeat.cell.cell_key,
        repeat=repeat.index,
        attempt=attempt.number,
        taker=attempt.taker,
    )
    return str(task_id)


def _seed(sweep_seed: int, attempt: Attempt) -> int:
    """Returns a seed that differs between attempts and is equal for the same attempt."""
    text = f"{sweep_seed}/{attempt.repeat.cell.cell_key}/{attempt.repeat.index}/{attempt.number}"
    return zlib.crc32(text.encode())
