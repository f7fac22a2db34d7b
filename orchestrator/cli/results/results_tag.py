"""`fleetrank results tag`: shows and changes the tags and the note of a sweep."""

from typing import Annotated

import typer

from fleetrank.orchestrator.cli.context import current
from fleetrank.orchestrator.cli.output.listing import AsJson, print_table
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.store.tagging import change_tags


def tag(
    sweep: Annotated[str, typer.Argument(help="The sweep.")],
    tags: Annotated[list[str] | None, typer.Argument(metavar="TAG...", help="Tags to add.")] = None,
    *,
    remove: Annotated[
        list[str] | None, typer.Option(metavar="TAG", help="Remove this tag; may be repeated.")
    ] = None,
    note: Annotated[
        str | None, typer.Option(help="Replace the note, one line; empty removes it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tag a sweep, or show its tags.

    Lists, status and page show tags and note, and `--sweep tag:NAME` selects by tag. Rows do not
    change.
    """
    store = ResultStore(current().workspace.results)
    found = change_tags(store, sweep, added=tags or (), removed=remove or (), note=note)
    row = {"sweep_id": sweep, "tags": list(found.tags), "note": found.note}
    print_table([row], as_json)
