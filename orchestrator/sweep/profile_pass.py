"""The profiles of a sweep: where the time of its cells goes."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fleetrank.orchestrator.dispatch.decide.work import SweepWork
from fleetrank.orchestrator.identity.cells import Cell, Plan, SkippedCell
from fleetrank.orchestrator.identity.keys import profiled_key
from fleetrank.orchestrator.sweep.side_pass import SideWork
from fleetrank.orchestrator.sweep.sweep_setup import Setup

if TYPE_CHECKING:
    from fleetrank.orchestrator.store.side_sink import SideForm


def profiles_of(setup: Setup, plan: Plan) -> SideWork:
    """The profiles of a plan as a side pass; empty without `profile: true`."""
    return SideWork(noun="profile", plan=profiled_plan(setup, plan), form=_form, is_profiled=True)


def store_costs(results: Path, sweep_id: str, work: SweepWork) -> None:
    """Stores what the MACs of the models consist of.

    Raises:
        StoreError: the disk is full or the folder cannot be written.
        DamagedPartError: a stored file of the sweep is damaged.
    """
    # Importing Polars takes 0.2 s, and most sweeps have no profile.
    from fleetrank.orchestrator.store.network_cost import store_module_macs

    store_module_macs(results, sweep_id, work.plan.cells, work.artifacts)


def _form() -> "SideForm":
    from fleetrank.orchestrator.store.profile_sink import PROFILE_FORM

    return PROFILE_FORM


def profiled_plan(setup: Setup, plan: Plan) -> Plan:
    """The cells of a plan that are profiled, and the others with the reason; pure.

    Without `profile: true` no cell is. Profiles do not take turns, and no device takes over
    another's: a profile is only of use beside the latency of its device.
    """
    cells: list[Cell] = []
    skipped: list[SkippedCell] = []
    for cell in plan.cells if setup.spec.profile else ():
        reason = _why_not_profiled(setup, cell)
        if reason is None:
            cells.append(replace(cell, cell_key=profiled_key(cell.cell_key)))
        else:
            skipped.append(SkippedCell(label=f"profile of {cell.label}", reason=reason))
    return replace(
        plan, cells=tuple(cells), skipped=tuple(skipped), rounds=None, allows_takeover=False
    )


def _why_not_profiled(setup: Setup, cell: Cell) -> str | None:
    kind = setup.devices[cell.device].kind_of
    if kind.why_not_profiled is None:
        return f"a device of kind {setup.devices[cell.device].kind} cannot be profiled"
    return kind.why_not_profiled(cell.execution)
