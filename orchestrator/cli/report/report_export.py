"""`fleetrank report export`: writes every table to a file."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fleetrank.orchestrator.cli.context import current
from fleetrank.orchestrator.cli.host_turn import host_turn
from fleetrank.orchestrator.cli.output.listing import print_table
from fleetrank.orchestrator.cli.report.selector_options import with_selectors
from fleetrank.orchestrator.workspace.selectors import PAGE_SELECTORS, Selectors


class ExportFormat(StrEnum):
    """File formats for programs, papers and pages."""

    CSV = "csv"
    LATEX = "latex"
    MARKDOWN = "markdown"


@with_selectors(*PAGE_SELECTORS)
def export(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Target folder; created if missing.")
    ],
    *,
    to: Annotated[ExportFormat, typer.Option("--to", help="File format of the tables.")],
    selectors: Selectors,
    force: Annotated[
        bool, typer.Option("--force", help="Also replace files that no export wrote.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the index as JSON.")] = False,
) -> None:
    """Write every table and an index of them into a folder.

    A table that cannot be computed from the results is omitted; the index gives the reason.
    """
    from fleetrank.analysis.stored.columns import ORIGINS
    from fleetrank.analysis.stored.load import load_measurements
    from fleetrank.analysis.tables.table_files import export_tables

    chosen = selectors.selection()
    frame = load_measurements(current().workspace.results, sweep=chosen.sweep, origins=ORIGINS)
    with host_turn("report export"):
        entries = export_tables(frame, chosen, folder, form=to.value, may_overwrite=force)
    rows = [
        {"table": entry.table, "file": entry.file, "missing_because": entry.missing_because}
        for entry in entries
    ]
    print_table(rows, as_json)
