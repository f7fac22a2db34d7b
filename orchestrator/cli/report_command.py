"""`fleetrank report`: the page and the tables of the analysis."""

import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer.core import TyperGroup

from fleetrank.analysis.stored.selection import CHANGE_ALPHA, MARGIN
from fleetrank.analysis.tables.tables import TABLES, TableSpec, part_of
from fleetrank.analysis.tables.text_columns import PIPE_WIDTH
from fleetrank.foundation.strict_json import json_text
from fleetrank.foundation.vocabulary import Form, TableForm
from fleetrank.foundation.wording import with_flags
from fleetrank.orchestrator.cli.context import Now, readable_workspace
from fleetrank.orchestrator.cli.listing import (
    EVERYTHING,
    AsJson,
    TableView,
    print_table,
    viewed_table,
    with_view,
    write_data,
)
from fleetrank.orchestrator.cli.options import AsForm, Command, share
from fleetrank.orchestrator.cli.reading_turn import Work, reading_turn
from fleetrank.orchestrator.cli.report_serve import serve
from fleetrank.orchestrator.cli.selector_options import Explain, JsonForm, with_selectors
from fleetrank.orchestrator.cli.stored_sweep import SWEEP_NAMES, stored_sweep
from fleetrank.orchestrator.cli.sweep_display import EXIT_SLOWER
from fleetrank.orchestrator.durable import replace_file
from fleetrank.orchestrator.errors import NothingToDoError, UsageError
from fleetrank.orchestrator.extras import require_libraries
from fleetrank.orchestrator.workspace.selectors import PAGE_SELECTORS, Selectors, selector_fields

if TYPE_CHECKING:
    from typer import _click as click

    from fleetrank.analysis.comparison.comparison import Comparison
    from fleetrank.analysis.comparison.gates import Requirement
    from fleetrank.analysis.panel.session import Session
    from fleetrank.analysis.stored.selection import Selection
    from fleetrank.analysis.tables.table import Table

_MOST_PLATFORMS = 4
"""Named in one message."""


@with_view
def compare(
    sweep_a: Annotated[str, typer.Argument(metavar="A", help=f"Baseline sweep. {SWEEP_NAMES}.")],
    sweep_b: Annotated[
        str | None,
        typer.Argument(metavar="B", help="Sweep to check, named the same way (default: latest)."),
    ] = None,
    *,
    margin: Annotated[
        float,
        typer.Option(
            "--margin",
            parser=share,
            metavar="SHARE",
            help="Largest change of no interest, as 5% or 0.05.",
        ),
    ] = MARGIN,
    alpha: Annotated[
        float, typer.Option(help="False discovery rate over the tested cells.")
    ] = CHANGE_ALPHA,
    now: Now = False,
    require_same: Annotated[
        bool,
        typer.Option(
            "--require-same", help="Fail unless all cells are the same within the margin."
        ),
    ] = False,
    require_not_slower: Annotated[
        bool,
        typer.Option(
            "--require-not-slower",
            help="Fail unless all cells are shown to be less than the margin slower.",
        ),
    ] = False,
    require_power: Annotated[
        bool,
        typer.Option(
            "--require-power",
            help="Fail unless a change as large as the margin would be found in any cell.",
        ),
    ] = False,
    explain: Explain = False,
    as_json: AsJson = False,
    junit: Annotated[
        Path | None,
        typer.Option(help="Also write a JUnit file: one test case for each cell."),
    ] = None,
    view: TableView,
) -> None:
    """Say which cells of sweep B are slower than in sweep A.

    Verdicts: slower, faster, same within the margin, or undecided. A cell is slower when the
    change exceeds the noise of its repeats and the spread between sessions, and is at least the
    margin.

    Exit code 5: at least one cell is slower. Exit code 4: no cell could be tested, or something
    that an option requires is not shown.
    """
    from fleetrank.analysis.comparison.comparison import (
        compare_sweeps,
        comparison_json,
        refuse_wrong_limits,
    )
    from fleetrank.analysis.comparison.gates import Requirement, junit_xml
    from fleetrank.orchestrator.store.results import ResultStore

    store = ResultStore(readable_workspace().results)
    checked = stored_sweep(store, sweep_b)
    baseline = stored_sweep(store, sweep_a, before=checked)
    refuse_wrong_limits(baseline, checked, threshold=margin, alpha=alpha)
    with reading_turn(store.root, (baseline, checked), work=Work.ROWS, now=now):
        found = compare_sweeps(store.root, baseline, checked, threshold=margin, alpha=alpha)
    options = {
        Requirement.SAME: require_same,
        Requirement.NOT_SLOWER: require_not_slower,
        Requirement.POWER: require_power,
    }
    required = [one for one, is_wanted in options.items() if is_wanted]
    if junit is not None:  # first, so that a build server has its file when the job fails
        replace_file(junit, junit_xml(found, required).encode())
    if as_json:
        print(json_text(comparison_json(found), indent=2))
    else:
        _print_text(found, view, is_explained=explain)
    _give_exit_code(found, required)


def _print_text(found: "Comparison", view: TableView, *, is_explained: bool) -> None:
    from fleetrank.analysis.comparison.comparison import comparison_sentence, worded_table

    table = worded_table(found)
    print_in_form(table, Form.TABLE, is_explained=is_explained, view=view, full="--json")
    # A reader of a job's log must see these: an upgrade explains what is slower.
    for difference in found.differences:
        print(difference.sentence)
    print(f"\n{comparison_sentence(found)}")


def _give_exit_code(found: "Comparison", required: "list[Requirement]") -> None:
    from fleetrank.analysis.arrays.two_samples import Verdict
    from fleetrank.analysis.comparison.gates import unmet_requirements

    if found.counts[Verdict.SLOWER]:
        raise typer.Exit(EXIT_SLOWER)
    platforms = sorted({cell.platform_key for cell in found.cells})
    if found.counts[Verdict.ONE_SIDED] == len(found.cells) and len(platforms) > 1:
        shown = "; ".join(platforms[:_MOST_PLATFORMS])
        raise NothingToDoError(
            f"no model was measured on the same platform in {found.sweep_a} and {found.sweep_b}; "
            f"their platforms: {shown}",
            "measure the same models on the same platforms in both: device, runtime, options, "
            "threads and `affinity` are parts of a platform",
        )
    if found.n_tested == 0:
        raise NothingToDoError(
            f"no cell of {found.sweep_a} and {found.sweep_b} could be tested for a change",
            "measure the same cells on the same device in both, with at least 5 repeats",
        )
    if unmet := unmet_requirements(found, required):
        raise NothingToDoError(
            "; ".join(unmet),
            "see `reason` of the cells in `--json`: more repeats, more stored sweeps of unchanged "
            "code, a quieter host or a larger --margin help",
        )


app = typer.Typer(no_args_is_help=True)
app.command()(compare)
app.command()(serve)
_PAGE = "report.html"
_OF_FILES = [one.name for one in selector_fields() if one.name != "set"]


@app.command()
@with_selectors(*_OF_FILES)
def build(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="With --tables or --figures: only these, such as transfer or trust/dropped.",
        ),
    ] = None,
    *,
    out: Annotated[
        Path | None, typer.Option(help=f"File to write (default: {_PAGE} in the workspace).")
    ] = None,
    predictions: Annotated[
        bool,
        typer.Option("--predictions", help="Show predicted latencies where a platform lacks them."),
    ] = False,
    tables: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write tables and an index into this folder, no page."),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write figures of one and two columns, captions and data into this folder.",
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="A,B",
            help="csv (default), latex, markdown of tables; pdf (default), svg, png of figures.",
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="With a folder: also replace files that were not written so."),
    ] = False,
    now: Now = False,
    as_json: AsJson = False,
    selectors: Selectors,
) -> None:
    """Write the report page, or tables or figures as files.

    The page is one HTML file that needs no network. It covers all models and platforms.
    """
    if tables is not None and figures is not None:
        raise UsageError("--tables and --figures are two commands", "give one of them")
    if tables is None:
        require_libraries("the page", "report", "jinja2", "vl_convert")
    folder = tables or figures
    if folder is None:
        _refuse_selected_page(names, to, selectors)
    workspace = readable_workspace()
    chosen = selectors.selection(workspace.results)
    turn = reading_turn(workspace.results, chosen.sweeps, work=Work.EVERY_TABLE, now=now)
    if folder is not None:
        with turn:
            found = _exported(
                chosen, folder, to, names or (), is_of_tables=folder is tables, force=force
            )
        print_table(found, as_json)
        return
    from fleetrank.analysis.report.page import build_report
    from fleetrank.orchestrator.lab import lab_states

    path = out or workspace.root / _PAGE
    with turn:
        states = lab_states(workspace)
        facts = build_report(
            workspace.results, path, selection=chosen, is_predicted=predictions, states=states
        )
    if as_json:
        print(json_text({**asdict(facts), "path": str(path)}, indent=2))
        return
    print(path, flush=True)
    # Beside the path, which a script reads.
    print("".join(f"\n{wrapped(one)}" for one in facts.answer), file=sys.stderr)


def _refuse_selected_page(
    names: Sequence[str] | None, to: str | None, selectors: Selectors
) -> None:
    """The page covers all models and platforms, and has one form."""
    given = [] if to is None else ["--to"]
    given += [f"'{name}'" for name in names or ()]
    given += [
        f"--{one.name.replace('_', '-')}"
        for one in selector_fields()
        if one.name not in ("set", *PAGE_SELECTORS)
        and getattr(selectors, one.name) not in (one.default, ())
    ]
    if given:
        raise UsageError(
            f"{given[0]} has no effect on the page", "add --tables DIR or --figures DIR"
        )


def _forms(to: str | None, known: Sequence[str]) -> list[str]:
    """The named forms; without a name the first known one."""
    given = [one.strip() for one in (to or known[0]).split(",") if one.strip()]
    for one in given:
        if one not in known:
            raise UsageError(f"--to has no '{one}' here", f"use {', '.join(known)}")
    return list(dict.fromkeys(given))


def _exported(
    selection: "Selection",
    folder: Path,
    to: str | None,
    names: Sequence[str],
    *,
    is_of_tables: bool,
    force: bool,
) -> list[dict[str, object]]:
    """Writes tables or figures; the index has the reason of each that the results cannot give."""
    from fleetrank.analysis.panel.session import Session
    from fleetrank.analysis.stored.columns import ORIGINS
    from fleetrank.analysis.stored.load import load_measurements

    results = readable_workspace().results
    frame = load_measurements(results, sweep=selection.sweep, origins=ORIGINS)
    session = Session(frame, selection, results=results)
    if is_of_tables:
        from fleetrank.analysis.tables.tables import SUFFIXES, export_tables

        entries = [
            entry
            for form in _forms(to, list(SUFFIXES))
            for entry in export_tables(session, folder, form=form, names=names, may_overwrite=force)
        ]
    else:
        from fleetrank.analysis.report.charts import IMAGES
        from fleetrank.analysis.report.paper_files import export_figures

        forms = _forms(to, list(IMAGES))
        entries = export_figures(session, folder, forms=forms, names=names, may_overwrite=force)
    kind = "table" if is_of_tables else "figure"
    return [
        {kind: one.request, "file": one.file, "missing_because": one.missing_because}
        for one in entries
    ]


class _TableCommands(Mapping[str, "click.Command"]):
    """The tables as commands, each made when it is used: all of them take longer than a table."""

    def __iter__(self) -> Iterator[str]:
        return iter(TABLES)

    def __len__(self) -> int:
        return len(TABLES)

    def __getitem__(self, name: str) -> "click.Command":
        """Raises `AnalysisError`, which names the nearest, for a name that no table has."""
        part_of(name)
        return _table_command(TABLES[name].name)


@cache
def _table_command(name: str) -> "click.Command":
    spec = TABLES[name]
    width = max(map(len, spec.parts))
    lines = (f"  {part:{width}}  {one.shows}" for part, one in spec.parts.items())
    text = "\n".join((f"{spec.question}\n\n\b\nParts:", *lines))
    alone = typer.Typer(rich_markup_mode=None, add_completion=False)
    alone.command(spec.name, help=text)(show_command(spec))
    return typer.main.get_command(alone)


class _Tables(TyperGroup):
    """The group of the tables."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = cast("dict[str, click.Command]", _TableCommands())


show = typer.Typer(invoke_without_command=True, rich_markup_mode=None, cls=_Tables)
app.add_typer(show, name="show")
_OF_PAIRS = ("target", "target_tier", "allow_unlike_batch")
"""Selectors that no table of single platforms has."""


@show.callback()
def questions(context: typer.Context, *, as_json: AsJson = False) -> None:
    """Print a table; without a name, list the questions of all tables."""
    if context.invoked_subcommand is None:
        rows = [
            {"table": name, "question": spec.question, "parts": list(spec.parts)}
            for name, spec in TABLES.items()
        ]
        print_table(rows, as_json)


def show_command(spec: TableSpec) -> Command:
    """The command that prints one table; it has the options of that table only."""
    names = [one.name for one in selector_fields() if one.name != "set"]
    if not any(part.is_of_pairs for part in spec.parts.values()):
        names = [name for name in names if name not in _OF_PAIRS]

    @with_view
    @with_selectors(*names, settings=spec.settings, takes_models=True)
    def command(
        *,
        part: Annotated[
            str, typer.Option(metavar="PART", help=f"One of {', '.join(spec.parts)}.")
        ] = spec.usual,
        selectors: Selectors,
        format_: AsForm = Form.TABLE,
        as_json: JsonForm = False,
        explain: Explain = False,
        now: Now = False,
        view: TableView,
    ) -> None:
        print_in_form(
            selected_table(f"{spec.name}/{part}", selectors, now=now),
            Form.JSON if as_json else format_,
            is_explained=explain,
            view=view,
        )

    return command


def wrapped(text: str, start: str = "") -> str:
    """A paragraph whose lines begin with `start`; no long name and no command is broken."""
    whole = re.sub("`[^`]+`", lambda found: found[0].replace(" ", "\0"), text)
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_WIDTH
    return textwrap.fill(
        whole,
        min(columns, PIPE_WIDTH),
        initial_indent=start,
        subsequent_indent=start,
        break_long_words=False,
        break_on_hyphens=False,
    ).replace("\0", " ")


def print_in_form(
    table: "Table",
    form: TableForm,
    *,
    is_explained: bool,
    view: TableView = EVERYTHING,
    full: str = "--format csv",
) -> None:
    """Prints the viewed part of a table in one form; `full` is the option that prints it all.

    Raises:
        UsageError: the table lacks a column that `view` names.
    """
    from fleetrank.analysis.tables.formats import render

    if form is Form.LATEX:  # few columns and every row
        view = replace(view, limit=view.limit or 0)
    table, said = viewed_table(table, view, is_for_people=form in (Form.TABLE, Form.LATEX))
    if form is Form.TABLE and sys.stdout.isatty():
        from fleetrank.orchestrator.cli.terminal import VisibleConsole, print_on_terminal

        console = VisibleConsole()
        print_on_terminal(table, console, is_explained=is_explained, full=full, said=said)
        return
    if form is Form.CSV:
        write_data(render(table, form.value).encode())
    else:
        text = render(
            table, form.value, is_explained=is_explained, is_cut=True, width=PIPE_WIDTH, said=said
        )
        print(text, end="")
    for one in said if form is not Form.TABLE else ():
        print(one, file=sys.stderr)


def selected_table(name: str, selectors: Selectors, *, now: bool) -> "Table":
    """Builds a table from the workspace's results.

    Raises:
        UsageError: a value of the selection is unknown.
        AnalysisError: as `analysis.tables.tables.make_table`.
    """
    from fleetrank.analysis.tables.tables import checked_table

    with selected_session(name, selectors, now=now) as session:
        table = checked_table(name, session)
    return in_options(table)


@contextmanager
def selected_session(name: str, selectors: Selectors, *, now: bool) -> "Iterator[Session]":
    """The workspace's rows for a table, in this process's turn to read.

    Raises:
        UsageError: a value of the selection is unknown.
        AnalysisError: as `analysis.tables.tables.check_request`.
    """
    from fleetrank.analysis.panel.session import Session
    from fleetrank.analysis.stored.columns import ORIGINS
    from fleetrank.analysis.stored.load import load_measurements
    from fleetrank.analysis.tables.tables import check_request

    part, results = part_of(name), readable_workspace().results
    selection = selectors.selection(results)
    # Read rows of every origin: the selection drops some, and the table reports how many.
    frame = load_measurements(results, sweep=selection.sweep, origins=ORIGINS)
    # Before any wait: a wrong name is an error at once.
    selection = check_request(name, frame, selection)
    work = Work.PAIRS if part.is_of_pairs else Work.ROWS
    with reading_turn(results, selection.sweeps, work=work, now=now):
        yield Session(frame, selection, results=results)


def in_options(table: "Table") -> "Table":
    """The table with notes that name choices as options of a command."""
    return replace(
        table,
        notes=tuple(map(with_flags, table.notes)),
        explanation=tuple(map(with_flags, table.explanation)),
    )
