"""The argument of a command that names a stored sweep."""

import sys
from typing import TYPE_CHECKING

from fleetrank.orchestrator.cli.context import current

if TYPE_CHECKING:
    from fleetrank.orchestrator.store.results import ResultStore

SWEEP_NAMES = (
    "An id, latest, previous, tag:NAME, or what `sweep plan` takes; a name means its newest sweep"
)
"""What `find_sweep` takes, for help texts."""


def stored_sweep(store: "ResultStore", given: str | None, *, before: str | None = None) -> str:
    """The id of the sweep that is meant, as `find_sweep`; says which one if another word is typed.

    Raises:
        UsageError: no sweep is meant, or several.
        NoDataError: no sweep has the tag.
        NothingToDoError: nothing is stored.
    """
    from fleetrank.orchestrator.sweep.sweep_argument import find_sweep

    sweep_id = find_sweep(current().workspace, store, given, before=before)
    if given not in {None, sweep_id}:
        print(f"{given}: {sweep_id}", file=sys.stderr)
    return sweep_id
