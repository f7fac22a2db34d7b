"""The sets of a sweep: its cells in several processes at the same time."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetrank.device_agents.contract.task import ReplicaPolicy
from fleetrank.orchestrator.identity.cells import Cell, Plan, SkippedCell
from fleetrank.orchestrator.identity.keys import replicated_key
from fleetrank.orchestrator.plan.estimate import copy_bytes
from fleetrank.orchestrator.plan.pinning import replica_cpus
from fleetrank.orchestrator.sweep.side_pass import SideWork
from fleetrank.orchestrator.sweep.sweep_setup import Setup, cores_of, memory_of

if TYPE_CHECKING:
    from fleetrank.orchestrator.store.side_sink import SideForm

_MB = 1e6


def sets_of(setup: Setup, plan: Plan) -> SideWork:
    """The sets of a plan as a side pass: each cell with each number of processes; pure.

    Empty without `replicas`. A set that cannot run is skipped with the reason. Sets do not take
    turns, and no device takes over another's.
    """
    cells: list[Cell] = []
    skipped: list[SkippedCell] = []
    for cell, policy in _asked(setup, plan):
        reason = _why_not(setup, cell, policy.count)
        of_set = replace(
            cell, cell_key=replicated_key(cell.cell_key, policy.count), replicas=policy
        )
        if reason is None:
            cells.append(of_set)
        else:
            skipped.append(SkippedCell(label=f"set of {of_set.label}", reason=reason))
    return SideWork(
        noun="set",
        plan=replace(
            plan,
            cells=tuple(cells),
            skipped=tuple(skipped),
            rounds=None,
            allows_takeover=False,
            repeats_disturbed=False,
        ),
        form=_form,
    )


def _asked(setup: Setup, plan: Plan) -> Iterator[tuple[Cell, ReplicaPolicy]]:
    asked = setup.spec.replicas
    if asked is None:
        return
    for cell in plan.cells:
        cores = cores_of(setup.devices[cell.device], setup.fleet)
        for count in asked.processes:
            cpus = replica_cpus(setup.spec, cell.execution, count, cores)
            yield cell, ReplicaPolicy(count=count, run_s=asked.run_s, cpus=cpus)


def _why_not(setup: Setup, cell: Cell, n_processes: int) -> str | None:
    device = setup.devices[cell.device]
    if device.kind_of.why_not_replicated is None:
        return (
            f"a device of kind {device.kind} runs one process at a time: name a cpu or a cuda "
            "device"
        )
    return device.kind_of.why_not_replicated(cell.execution) or _why_no_room(
        cell, n_processes, memory_of(device, setup.fleet)
    )


def _why_no_room(cell: Cell, n_processes: int, memory_bytes: int | None) -> str | None:
    """The reason why so many copies cannot fit, by the least that one copy needs."""
    each = copy_bytes(cell.export)
    if memory_bytes is None or n_processes * each <= memory_bytes:
        return None
    return (
        f"{n_processes} copies of {each / _MB:,.0f} MB each, for weights and cache alone, do not "
        f"fit in {memory_bytes / _MB:,.0f} MB: ask for {memory_bytes // each} processes at most"
    )


def _form() -> "SideForm":
    from fleetrank.orchestrator.store.replica_sink import REPLICA_FORM

    return REPLICA_FORM
