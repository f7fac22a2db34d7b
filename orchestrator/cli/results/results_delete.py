"""`fleetrank results delete`: deletes sweeps permanently."""

from dataclasses import asdict
from typing import Annotated

import typer

from fleetrank.foundation.wording import count_of
from fleetrank.orchestrator.cli.confirmation import Yes, is_confirmed
from fleetrank.orchestrator.cli.context import current
from fleetrank.orchestrator.cli.host_turn import host_turn
from fleetrank.orchestrator.cli.output.listing import AsJson, print_table
from fleetrank.orchestrator.housekeeping.delete import delete_sweep, plan_deletion
from fleetrank.orchestrator.store.results import ResultStore


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
        # The lease prevents figures from being computed while their files are deleted.
        with host_turn("results delete"):
            for one in plan:
                delete_sweep(store, one.sweep_id)
    if as_json:
        print_table([asdict(one) | {"is_done": is_done} for one in plan], as_json)
    else:
        print(f"{count_of(len(plan), 'sweep')} deleted" if is_done else "nothing deleted")
