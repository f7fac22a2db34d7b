"""`fleetrank report` and `recommend`: the page and the tables of the analysis."""

import functools
import importlib.util
import inspect
from collections.abc import Callable
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetrank.device_agents.errors import MissingLibraryError
from fleetrank.orchestrator.cli.context import current, host_turn, reading_turn
from fleetrank.orchestrator.cli.output.listing import print_table, write_data
from fleetrank.orchestrator.cli.report.report_compare import compare
from fleetrank.orchestrator.cli.report.report_serve import serve
from fleetrank.orchestrator.workspace.selectors import (
    PAGE_SELECTORS,
    SelectorField,
    SelectorKind,
    Selectors,
    TableFormat,
    selector_fields,
)

if TYPE_CHECKING:
    from fleetrank.analysis.tables.table import Table

Command = Callable[..., None]
_PARAMETER = "selectors"


def with_selectors(*names: str) -> Callable[[Command], Command]:
    """Gives a command one option per selector in place of its parameter `selectors`.

    Args:
        names: the selectors that the command has; all, if no name is given.
    """

    def decorate(command: Command) -> Command:
        fields = {field.name: field for field in selector_fields()}
        options = [_option(fields[name]) for name in names or fields]
        signature = inspect.signature(command)
        parameters: list[inspect.Parameter] = []
        for name, parameter in signature.parameters.items():
            parameters += options if name == _PARAMETER else [parameter]

        @functools.wraps(command)
        def run(**given: object) -> None:
            values = {option.name: given.pop(option.name) for option in options}
            known = {name: value for name, value in values.items() if value is not None}
            command(**given, selectors=Selectors.model_validate(known))

        # Typer reads the options from both.
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


def _option(field: SelectorField) -> inspect.Parameter:
    """One option; its name is the one of the API, with hyphens."""
    flag, text = f"--{field.name.replace('_', '-')}", field.description
    kind: object = str | None
    option, default = typer.Option(flag, help=text), field.default
    if field.kind is SelectorKind.BOOLEAN:
        kind = bool
    elif field.kind is SelectorKind.INTEGER:
        kind = int
        option = typer.Option(flag, min=field.minimum, max=field.maximum, help=text)
    elif field.kind is SelectorKind.ARRAY:
        kind, default = list[str] | None, None
        option = typer.Option(flag, metavar="NAME=VALUE", help=text)
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, option],
    )


app = typer.Typer(no_args_is_help=True)
app.command()(compare)
app.command()(serve)

_PAGE = "report.html"
_LIBRARIES = ("jinja2", "vl_convert")


class ExportFormat(StrEnum):
    """File formats for programs, papers and pages."""

    CSV = "csv"
    LATEX = "latex"
    MARKDOWN = "markdown"


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
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Also explain the columns and how they are computed."),
    ] = False,
    selectors: Selectors,
) -> None:
    """Print one table as text, JSON, CSV, Markdown or LaTeX."""
    from fleetrank.analysis.tables.formats import render
    from fleetrank.orchestrator.cli.output.terminal import VisibleConsole, print_on_terminal

    table = _selected_table(name, selectors)
    form = TableFormat.JSON if as_json else format_
    console = VisibleConsole()
    if form is TableFormat.TABLE and console.is_terminal:
        print_on_terminal(table, console, is_explained=explain)
    elif form is TableFormat.CSV:
        write_data(render(table, form.value).encode())
    else:
        print(render(table, form.value, is_explained=explain), end="")


@app.command()
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
    table = _selected_table("recommend", chosen)
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


def _selected_table(name: str, selectors: Selectors) -> "Table":
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
