"""`fleetrank query`: queries the measurements with SQL."""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from fleetrank.analysis.tables.tables import TABLES
from fleetrank.foundation.errors import count_of
from fleetrank.foundation.files import make_folder, written_aside
from fleetrank.foundation.vocabulary import Form
from fleetrank.orchestrator.cli.context import Now, Work, current, readable_workspace, turn_for
from fleetrank.orchestrator.cli.listing import TableView, print_table, with_view, write_data
from fleetrank.orchestrator.cli.options import AsForm, Explain, JsonForm, with_selectors
from fleetrank.orchestrator.cli.report_command import print_in_form, selected_table
from fleetrank.orchestrator.compute.child import (
    QUERY_GRACE_S,
    QUERY_MEMORY_BYTES,
    Child,
    Job,
    JobKind,
    RefusedError,
    error_of_child,
)
from fleetrank.orchestrator.errors import UsageError, require_libraries
from fleetrank.orchestrator.workspace.selectors import Selectors

_RowForm = Literal[Form.TABLE, Form.JSON, Form.CSV, Form.PARQUET]
_TIMEOUT_S = 30.0
_QUANTITY = TABLES["predict"].settings["quantity"]
_MAX_ROWS = 1000
"""Default row limit, more than fits a terminal; `--max-rows` raises it."""


_THREADS = 4
"""Threads of each library, the same as DuckDB gets; more only use memory."""


def query(
    sql: Annotated[str | None, typer.Argument(help="One SELECT statement.", metavar="SQL")] = None,
    *,
    tables: Annotated[
        bool, typer.Option("--tables", help="List tables and columns, with their units.")
    ] = False,
    format_: Annotated[_RowForm, typer.Option("--format", help="Output format.")] = (Form.TABLE),
    as_json: Annotated[bool, typer.Option("--json", help="Same as --format json.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write to this file instead of standard output.")
    ] = None,
    timeout_s: Annotated[
        float,
        typer.Option(min=0.01, help="Stop after so many seconds; ten times more without a core."),
    ] = _TIMEOUT_S,
    max_rows: Annotated[
        int, typer.Option(min=1, max=10**9, help="Maximum number of rows.")
    ] = _MAX_ROWS,
    now: Now = False,
) -> None:
    """Query measurements, devices, models and sweeps with one SELECT.

    The view measurements has the rows that tables use; all_measurements has every stored row.
    The query cannot access files or settings, or contain a second statement.
    """
    require_libraries("SQL", "analysis", "duckdb")
    form = Form.JSON if as_json else format_
    if out is not None and form is Form.TABLE:
        raise UsageError(
            "--out needs a machine-readable format", "add --format parquet, csv or json"
        )
    if sql is None and not tables:
        raise UsageError("no SQL given", 'run `fleetrank query "SELECT ..."`, or see --tables')
    if form is Form.PARQUET and out is None and sys.stdout.isatty():
        raise UsageError("Parquet cannot be printed", "write it to a file with --out FILE")
    with _file(out) as path:
        if tables or sql is None:
            _write_columns(path, form)
        else:
            _ask(sql, path, form, timeout_s, max_rows, now=now)
        if out is None:
            _print(path, form)


@contextmanager
def _file(out: Path | None) -> Iterator[Path]:
    """Temporary file for the answer; a partial answer is never printed."""
    if out is not None:
        make_folder(out.absolute().parent)
        with written_aside(out.absolute(), is_synced=True) as path:
            yield path
        return
    with tempfile.NamedTemporaryFile(prefix="fleetrank-query-") as file:
        yield Path(file.name)


def _write_columns(path: Path, form: Form) -> None:
    import polars as pl

    from fleetrank.analysis.sql import described_views
    from fleetrank.orchestrator.compute.answering import write_rows

    frame = pl.DataFrame([asdict(column) for column in described_views()])
    write_rows([frame], path, form, frame.height)


def _ask(sql: str, path: Path, form: Form, timeout_s: float, max_rows: int, *, now: bool) -> None:
    """Writes the rows in a child process, so that one huge value can end only the child.

    Raises:
        AnalysisError: the child's error, as `analysis.sql.run_query` raises it.
    """
    results = readable_workspace().results
    job = Job(
        kind=JobKind.QUERY_FILE,
        name=sql,
        form=form.value,
        timeout_s=timeout_s,
        max_rows=max_rows,
        out=str(path),
    )
    child = Child(
        results,
        memory_limit_bytes=QUERY_MEMORY_BYTES,
        threads=_THREADS,
        is_quiet=not current().debug,
    )
    parts = list(results.glob("measurements/sweep_id=*/*.parquet"))
    turn = turn_for(parts, work=Work.ROWS, now=now)
    try:
        with turn, closing(child):
            answer = child.ask(job, "", timeout_s=timeout_s + QUERY_GRACE_S)
    except RefusedError as refused:
        raise error_of_child(refused) from refused
    written = json.loads(answer.body)
    if written["is_cut"]:
        _note(f"only the first {count_of(max_rows, 'row')} shown; raise --max-rows for more")
    if written["left_out"]:
        _note(written["left_out"])
    if n := written["n_not_finite"]:
        _note(f"{count_of(n, 'value')} written as null: JSON has no NaN or Infinity")


def _note(text: str) -> None:
    print(text, file=sys.stderr)


def _print(path: Path, form: Form) -> None:
    if form is Form.TABLE:
        print_table(json.loads(path.read_bytes()), as_json=False)
        return
    if form is not Form.PARQUET and sys.stdout.isatty():
        write_data(path.read_bytes())
        return
    sys.stdout.flush()
    with path.open("rb") as file:
        shutil.copyfileobj(file, sys.stdout.buffer)
    sys.stdout.buffer.flush()


# `fleetrank predict`: what a hardly measured device will do, with intervals.


@with_view
@with_selectors("sweep", "source", "runtime", "precision", "workload", "include_simulated", "seed")
def predict(
    *,
    device: Annotated[str, typer.Option(help="Device to predict, or a platform pattern with *.")],
    quantity: Annotated[
        str, typer.Option(metavar="WORD", help=f"One of {', '.join(_QUANTITY.words)}.")
    ] = _QUANTITY.default,
    models: Annotated[
        list[str] | None,
        typer.Option(help="List only these models: a name, or a pattern with *; may be repeated."),
    ] = None,
    coverage: Annotated[
        float, typer.Option(help="Share of intervals that hold the value of a measurement.")
    ] = 0.9,
    like: Annotated[
        str | None,
        typer.Option(
            help="Device, platform or pattern with *: the configuration of a device without "
            "measurements."
        ),
    ] = None,
    format_: AsForm = Form.TABLE,
    as_json: JsonForm = False,
    explain: Explain = False,
    now: Now = False,
    view: TableView,
    selectors: Selectors,
) -> None:
    """Predict every model on a device from its few measurements and all known devices.

    `fleetrank report show predict` prints the same as a table and accepts all selectors.
    """
    given = {
        "quantity": quantity,
        "coverage": f"{coverage:g}",
        "models": ",".join(models or ()),
        "like": like or "",
    }
    chosen = selectors.model_copy(
        update={
            # A device without measurements is on no stored row that a target could select.
            "target": None if like else device,
            "settings": tuple(f"{name}={value}" for name, value in given.items()),
        }
    )
    print_in_form(
        selected_table("predict", chosen, now=now),
        Form.JSON if as_json else format_,
        is_explained=explain,
        view=view,
    )
