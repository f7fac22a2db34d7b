"""`fleetrank report` and `recommend`: the page and the tables of the analysis."""

import shutil
import sys
import textwrap
from dataclasses import asdict, replace
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetrank.analysis.tables.fitted_text import PIPE_WIDTH
from fleetrank.analysis.tables.former_names import renaming_of
from fleetrank.analysis.tables.tables import TABLES
from fleetrank.foundation.strict_json import json_text
from fleetrank.foundation.wording import with_flags
from fleetrank.orchestrator.cli.context import current
from fleetrank.orchestrator.cli.output.listing import AsJson, print_table, write_data
from fleetrank.orchestrator.cli.output.table_view import (
    EVERYTHING,
    TableView,
    viewed_table,
    with_view,
)
from fleetrank.orchestrator.cli.reading_turn import Now, Work, reading_turn
from fleetrank.orchestrator.cli.report.report_compare import compare
from fleetrank.orchestrator.cli.report.report_serve import serve
from fleetrank.orchestrator.cli.report.selector_options import (
    Explain,
    Form,
    JsonForm,
    with_selectors,
)
from fleetrank.orchestrator.extras import require_libraries
from fleetrank.orchestrator.workspace.selectors import (
    PAGE_SELECTORS,
    Selectors,
    TableFormat,
)

if TYPE_CHECKING:
    from fleetrank.analysis.tables.table import Table

app = typer.Typer(no_args_is_help=True)
app.command()(compare)
app.command()(serve)

_PAGE = "report.html"


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
    predictions: Annotated[
        bool,
        typer.Option("--predictions", help="Show predicted latencies where a platform lacks them."),
    ] = False,
    now: Now = False,
    as_json: AsJson = False,
    selectors: Selectors,
) -> None:
    """Write the transfer report as one offline HTML page."""
    require_libraries("the page", "report", "jinja2", "vl_convert", "scipy")
    from fleetrank.analysis.report.page import build_report

    workspace = current().workspace
    path = out or workspace.root / _PAGE
    chosen = selectors.selection(workspace.results)
    turn = reading_turn(workspace.results, chosen.sweeps, work=Work.EVERY_TABLE, now=now)
    with turn:
        facts = build_report(
            workspace.results,
            path,
            selection=chosen,
            is_predicted=predictions,
        )
    print(json_text({**asdict(facts), "path": str(path)}, indent=2) if as_json else path)


@app.command()
@with_view
@with_selectors(has_settings=True)
def show(
    name: Annotated[str, typer.Argument(metavar="TABLE", help=f"One of {', '.join(TABLES)}.")],
    *,
    format_: Form = TableFormat.TABLE,
    as_json: JsonForm = False,
    explain: Explain = False,
    now: Now = False,
    view: TableView,
    selectors: Selectors,
) -> None:
    """Print one table as text, JSON, CSV, Markdown or LaTeX."""
    if (renaming := renaming_of(name)) is not None:
        print(with_flags(renaming), file=sys.stderr)
    print_in_form(
        selected_table(name, selectors, now=now),
        TableFormat.JSON if as_json else format_,
        is_explained=explain,
        view=view,
    )


@app.command()
@with_selectors(*PAGE_SELECTORS)
def export(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Target folder; created if missing.")
    ],
    *,
    to: Annotated[ExportFormat, typer.Option("--to", help="File format of the tables.")],
    now: Now = False,
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

    results = current().workspace.results
    chosen = selectors.selection(results)
    frame = load_measurements(results, sweep=chosen.sweep, origins=ORIGINS)
    turn = reading_turn(results, chosen.sweeps, work=Work.EVERY_TABLE, now=now)
    with turn:
        entries = export_tables(
            frame, chosen, folder, form=to.value, may_overwrite=force, results=results
        )
    rows = [
        {"table": entry.table, "file": entry.file, "missing_because": entry.missing_because}
        for entry in entries
    ]
    print_table(rows, as_json)


@with_selectors(
    "sweep", "source", "target", "source_tier", "target_tier", "runtime", "precision", "workload",
    "include_simulated", "allow_unlike_batch", "seed",
)  # fmt: skip
def recommend(
    *,
    goal: Annotated[
        str, typer.Option(help="Goal such as 'production', or its first letters (default: all).")
    ] = "",
    now: Now = False,
    selectors: Selectors,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Show what to measure for a goal and the figures that support it.

    `fleetrank report show recommend` prints the same as a table and accepts all selectors.
    """
    from fleetrank.analysis.statistics.choices.recommend import branches_of
    from fleetrank.analysis.tables.formats import render

    branches_of(goal)  # a wrong goal is an error before any wait
    chosen = selectors.model_copy(update={"settings": (f"goal={goal}",)})
    table = selected_table("recommend", chosen, now=now)
    if as_json:
        print(render(table, "json"), end="")
        return
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_WIDTH
    width = min(columns, PIPE_WIDTH)
    for name, rows in groupby(table.frame.iter_rows(named=True), key=lambda row: str(row["goal"])):
        print(f"{name[:1].upper()}{name[1:]}")
        for row in rows:
            print(_wrapped(str(row["answer"]), width, "  "))
    print()
    for note in table.notes:
        print(_wrapped(note, width, "# "))


def _wrapped(text: str, width: int, start: str) -> str:
    """A paragraph whose lines begin with `start`; a name longer than a line is not broken."""
    return textwrap.fill(
        text,
        width,
        initial_indent=start,
        subsequent_indent=start,
        break_long_words=False,
        break_on_hyphens=False,
    )


def print_in_form(
    table: "Table", form: TableFormat, *, is_explained: bool, view: TableView = EVERYTHING
) -> None:
    """Prints the viewed part of a table in one form.

    Raises:
        UsageError: the table lacks a column that `view` names.
    """
    from fleetrank.analysis.tables.formats import render
    from fleetrank.orchestrator.cli.output.pager import show as show_paged
    from fleetrank.orchestrator.cli.output.terminal import VisibleConsole, print_on_terminal

    console = VisibleConsole()
    is_on_terminal = form is TableFormat.TABLE and console.is_terminal
    table, note = viewed_table(table, view, is_on_terminal=is_on_terminal)
    if is_on_terminal:
        with console.capture() as captured:
            print_on_terminal(table, console, is_explained=is_explained, note=note)
        show_paged(captured.get(), console, has_pager=view.has_pager)
        return
    if form is TableFormat.CSV:
        write_data(render(table, form.value).encode())
    else:
        text = render(table, form.value, is_explained=is_explained, width=PIPE_WIDTH)
        print(text, end="")
    if note:
        print(note, file=sys.stderr)


def selected_table(name: str, selectors: Selectors, *, now: bool) -> "Table":
    """Builds a table from the workspace's results.

    Raises:
        UsageError: a value of the selection is unknown.
        AnalysisError: as `analysis.tables.tables.make_table`.
    """
    from fleetrank.analysis.stored.columns import ORIGINS
    from fleetrank.analysis.stored.load import load_measurements
    from fleetrank.analysis.tables.tables import check_request, make_table

    results = current().workspace.results
    selection = selectors.selection(results)
    # Read rows of every origin: the selection drops some, and the table reports how many.
    frame = load_measurements(results, sweep=selection.sweep, origins=ORIGINS)
    spec = check_request(name, frame, selection)
    work = Work.ROWS if spec.is_of_platforms else Work.PAIRS
    with reading_turn(results, selection.sweeps, work=work, now=now):
        table = make_table(name, frame, selection, results=results)
    return in_options(table)


def in_options(table: "Table") -> "Table":
    """The table with notes that name choices as options of a command."""
    return replace(
        table,
        notes=tuple(map(with_flags, table.notes)),
        explanation=tuple(map(with_flags, table.explanation)),
    )
