"""`fleetrank report`: the page, tables and comparisons, also over HTTP."""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetrank.device_agents.errors import MissingLibraryError
from fleetrank.orchestrator.cli.context import current
from fleetrank.orchestrator.cli.host_turn import reading_turn
from fleetrank.orchestrator.cli.output.visible_stream import write_data
from fleetrank.orchestrator.cli.report.report_compare import compare
from fleetrank.orchestrator.cli.report.report_export import export
from fleetrank.orchestrator.cli.report.report_serve import serve
from fleetrank.orchestrator.cli.report.selector_options import with_selectors
from fleetrank.orchestrator.workspace.selectors import PAGE_SELECTORS, Selectors, TableFormat

if TYPE_CHECKING:
    from fleetrank.analysis.tables.table import Table

app = typer.Typer(no_args_is_help=True)
app.command()(compare)
app.command()(export)
app.command()(serve)

_PAGE = "report.html"
_LIBRARIES = ("jinja2", "vl_convert")


@app.command()
@with_selectors(*PAGE_SELECTORS)
def build(
    *,
    out: Annotated[
        Path | None, typer.Option(help=f"File to write (default: {_PAGE} in the workspace).")
    ] = None,
    selectors: Selectors,
) -> None:
    """Write the transfer report as one offline HTML page."""
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingLibraryError(
            f"the page needs {', '.join(missing)}, not installed",
            "pip install 'fleetrank[report]'",
        )
    from fleetrank.analysis.report.page import build_report

    workspace = current().workspace
    path = out or workspace.root / _PAGE
    chosen = selectors.selection()
    with reading_turn("report build", workspace.results, chosen.sweep):
        build_report(
            workspace.results, path, sweep=chosen.sweep, origins=chosen.origins, seed=chosen.seed
        )
    print(path)


@app.command()
@with_selectors()
def show(
    name: Annotated[str, typer.Argument(help="Table such as latency, memory, transfer, pareto.")],
    *,
    format_: Annotated[TableFormat, typer.Option("--format", help="Output format.")] = (
        TableFormat.TABLE
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Same as --format json.")] = False,
    selectors: Selectors,
) -> None:
    """Print one table as text, JSON, CSV, Markdown or LaTeX."""
    from fleetrank.analysis.tables.formats import render
    from fleetrank.orchestrator.cli.output.terminal_table import print_on_terminal
    from fleetrank.orchestrator.cli.output.visible_console import VisibleConsole

    table = selected_table(name, selectors)
    form = TableFormat.JSON if as_json else format_
    console = VisibleConsole()
    if form is TableFormat.TABLE and console.is_terminal:
        print_on_terminal(table, console)
    elif form is TableFormat.CSV:
        write_data(render(table, form.value).encode())
    else:
        print(render(table, form.value), end="")


def selected_table(name: str, selectors: Selectors) -> "Table":
    """Builds a table from the workspace's results.

    Raises:
        UsageError: a value of the selection is unknown.
        AnalysisError: as `analysis.tables.tables.make_table`.
    """
    from fleetrank.analysis.stored.columns import ORIGINS
    from fleetrank.analysis.stored.load import load_measurements
    from fleetrank.analysis.tables.tables import make_table

    selection = selectors.selection()
    results = current().workspace.results
    with reading_turn("report show", results, selection.sweep):
        # Read rows of every origin: the selection drops some, and the table reports how many.
        frame = load_measurements(results, sweep=selection.sweep, origins=ORIGINS)
        return make_table(name, frame, selection)
