"""`fleetrank recommend`: what to measure for a goal, based on the workspace's own figures."""

from itertools import groupby
from typing import Annotated

import typer

from fleetrank.orchestrator.cli.report.report_command import selected_table
from fleetrank.orchestrator.cli.report.selector_options import (
    OfPrecision,
    OfRuntime,
    Seed,
    Simulated,
    Source,
    SourceTier,
    Sweep,
    Target,
    TargetTier,
)
from fleetrank.orchestrator.workspace.selectors import Selectors


def recommend(
    *,
    goal: Annotated[
        str, typer.Option(help="Goal such as 'production', or its first letters (default: all).")
    ] = "",
    source: Source = None,
    target: Target = None,
    source_tier: SourceTier = None,
    target_tier: TargetTier = None,
    runtime: OfRuntime = None,
    precision: OfPrecision = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
    sweep: Sweep = None,
    include_simulated: Simulated = False,
    seed: Seed = 0,
) -> None:
    """Show what to measure for a goal and the figures that support it.

    `fleetrank report show recommend` prints the same as a table and accepts all selectors.
    """
    from fleetrank.analysis.tables.formats import render

    selectors = Selectors(
        sweep=sweep,
        source=source,
        target=target,
        source_tier=source_tier,
        target_tier=target_tier,
        runtime=runtime,
        precision=precision,
        set=(f"goal={goal}",),
        include_simulated=include_simulated,
        seed=seed,
    )
    table = selected_table("recommend", selectors)
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
