"""`fleetrank report export`: every table as a file."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fleetrank.orchestrator.cli.context import current
from fleetrank.orchestrator.cli.host_turn import host_turn
from fleetrank.orchestrator.cli.output.listing import print_table
from fleetrank.orchestrator.cli.report.selector_options import Seed, Simulated, Sweep
from fleetrank.orchestrator.workspace.selectors import Selectors


class ExportFormat(StrEnum):
    """What the files are for: a program, a paper, a page."""

    CSV = "csv"
    LATEX = "latex"
    MARKDOWN = "markdown"


def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to; made if missing.")],
    *,
    to: Annotated[ExportFormat, typer.Option("--to", help="Form of the tables.")],
    sweep: Sweep = None,
    include_simulated: Simulated = False,
    seed: Seed = 0,
    force: Annotated[
        bool, typer.Option("--force", help="Replace files that no export wrote, too.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the index as JSON.")] = False,
) -> None:
    """Write every table into a folder, with an index of them.

    A table that the results cannot carry is left out, and the index says why.
    """
    from fleetrank.analysis.stored.columns import ORIGINS
    from fleetrank.analysis.stored.load import load_measurements
    from fleetrank.analysis.tables.table_files import export_tables

    selectors = Selectors(sweep=sweep, include_simulated=include_simulated, seed=seed)
    frame = load_measurements(current().workspace.results, sweep=sweep, origins=ORIGINS)
    with host_turn("report export"):
        entries = export_tables(
            frame, selectors.selection(), folder, form=to.value, may_overwrite=force
        )
    rows = [
        {"table": entry.table, "file": entry.file, "missing_because": entry.missing_because}
        for entry in entries
    ]
    print_table(rows, as_json)
