"""`fleetrank recommend`: what to measure for a goal, based on the workspace's own figures."""

from itertools import groupby
from typing import Annotated

import typer

from fleetrank.orchestrator.cli.report.report_command import selected_table
from fleetrank.orchestrator.cli.report.selector_options import with_selectors
from fleetrank.orchestrator.workspace.selectors import Selectors


@with_selectors(
    "sweep", "source", "target", "source_tier", "target_tier", "runtime", "precision",
    "include_simulated", "seed",
)  # fmt: skip
def recommend(
    *,
    goal: Annotated[
        str, typer.Option(help="Goal such as 'production', or its first letters (default: all).")
    ] = "",
    selectors: Selectors,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Show what to measure for a goal and the figures that support it.

    `fleetrank report show recommend` prints the same as a table and accepts all selectors.
    """
    from fleetrank.analysis.tables.formats import render

    chosen = selectors.model_copy(update={"settings": (f"goal={goal}",)})
    table = selected_table("recommend", chosen)
    if as_json:
        print(render(table, "json"), end="")
        return
    for name, rows in groupby(table.frame.iter_rows(named=True), key=lambda row: str(row["goal"])):
        print(f"{name[:1].upper()}{name[1:]}")
        for row in rows:
            print(f"  {row['answer']}")
    print()
    for note in table.notes:
        print(f"# {note}")
