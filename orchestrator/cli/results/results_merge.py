"""`fleetrank results merge`: copies the sweeps of another workspace."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fleetrank.foundation.wording import count_of
from fleetrank.orchestrator.cli.confirmation import Yes, is_confirmed
from fleetrank.orchestrator.cli.context import current
from fleetrank.orchestrator.cli.host_turn import host_turn
from fleetrank.orchestrator.cli.output.listing import AsJson, print_table
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.housekeeping.merge import Merging, Step, copy_sweep, plan_merge
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.workspace.workspace import Workspace


def merge(
    other_workspace: Annotated[Path, typer.Argument(help="The workspace to copy from.")],
    *,
    is_sure: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Copy the sweeps of another workspace into this one.

    Shows first what it would copy. Device files, model cards and exported files are not copied.
    """
    store = ResultStore(current().workspace.results)
    other = ResultStore(Workspace.at(other_workspace).results)
    with host_turn("results merge"):
        plan = plan_merge(store, other)
    if not as_json:
        print_table([asdict(one) for one in plan], as_json)
    _refuse_any(plan)
    copied = [one for one in plan if one.step is Step.COPY]
    question = f"Copy {count_of(len(copied), 'sweep')}?"
    is_done = bool(copied) and is_confirmed(question, is_sure, as_json)
    if is_done:
        with host_turn("results merge"):
            for one in copied:
                copy_sweep(store, other, one.sweep_id)
    if as_json:
        print_table([asdict(one) | {"is_done": is_done} for one in plan], as_json)
    else:
        print(f"{count_of(len(copied), 'sweep')} copied" if is_done else "nothing copied")
        if is_done:
            print("device files, model cards and exported files were not copied")


def _refuse_any(plan: Sequence[Merging]) -> None:
    """Raises if any sweep conflicts: a workspace is copied completely or not at all."""
    if refused := [one for one in plan if one.step is Step.REFUSE]:
        raise UsageError(
            "; ".join(f"{one.sweep_id}: {one.reason}" for one in refused),
            "wait for a running sweep to end; if two sweeps differ, delete one: "
            "`fleetrank results delete SWEEP`",
        )
