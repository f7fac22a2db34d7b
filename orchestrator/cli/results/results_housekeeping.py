"""`fleetrank results delete` and `merge`: delete sweeps, copy those of another workspace."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fleetrank.foundation.wording import count_of
from fleetrank.orchestrator.cli.context import current, host_turn
from fleetrank.orchestrator.cli.output.listing import AsJson, print_table
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.housekeeping.delete_and_merge import (
    Merging,
    Step,
    copy_sweep,
    delete_sweep,
    plan_deletion,
    plan_merge,
)
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.store.side_records import copy_side_rows, missing_side_files
from fleetrank.orchestrator.workspace.workspace import Workspace

Yes = Annotated[
    bool, typer.Option("--yes", help="Carry out the plan. Without it the plan is only shown.")
]


def is_confirmed(question: str, is_sure: bool, as_json: bool) -> bool:
    """Whether the user agreed, by `--yes` or at a terminal; otherwise prints a hint."""
    if is_sure:
        return True
    if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        print("This is the plan. Add --yes to carry it out.", file=sys.stderr)
        return False
    return typer.confirm(question)


def delete(
    sweeps: Annotated[list[str], typer.Argument(help="Sweeps to delete.", metavar="SWEEP...")],
    *,
    is_sure: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete sweeps with all their files.

    Deletes rows, journals, raw logs, records and the exclusions of these sweeps. Shows first what
    it would delete. To keep a sweep but leave it out of all figures, use `results exclude`.
    """
    store = ResultStore(current().workspace.results)
    plan = plan_deletion(store, sweeps)
    if not as_json:
        print_table([asdict(one) for one in plan], as_json)
    is_done = is_confirmed(f"Delete {count_of(len(plan), 'sweep')}?", is_sure, as_json)
    if is_done:
        for one in plan:
            with host_turn("results delete"):
                delete_sweep(store, one.sweep_id)
    if as_json:
        print_table([asdict(one) | {"is_done": is_done} for one in plan], as_json)
    else:
        print(f"{count_of(len(plan), 'sweep')} deleted" if is_done else "nothing deleted")


def merge(
    other_workspace: Annotated[Path, typer.Argument(help="The workspace to copy from.")],
    *,
    is_sure: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Copy the sweeps of another workspace into this one.

    Shows first what it would copy. Rows of side tables are copied too. Device files, model cards
    and exported files are not copied.
    """
    store = ResultStore(current().workspace.results)
    other = ResultStore(Workspace.at(other_workspace).results)
    with host_turn("results merge"):
        plan = plan_merge(store, other)
    if not as_json:
        print_table([asdict(one) for one in plan], as_json)
    _refuse_any(plan)
    copied = [one for one in plan if one.step is Step.COPY]
    n_files = len(missing_side_files(store.root, other.root))
    side = count_of(n_files, "file of side tables", "files of side tables")
    what = " and ".join(
        [count_of(len(copied), "sweep")] * bool(copied or not n_files) + [side] * bool(n_files)
    )
    is_done = bool(copied or n_files) and is_confirmed(f"Copy {what}?", is_sure, as_json)
    if is_done:
        for one in copied:
            with host_turn("results merge"):
                copy_sweep(store, other, one.sweep_id)
        with host_turn("results merge"):
            copy_side_rows(store.root, other.root)
    if as_json:
        print_table([asdict(one) | {"is_done": is_done} for one in plan], as_json)
    else:
        print(f"{what} copied" if is_done else "nothing copied")
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
