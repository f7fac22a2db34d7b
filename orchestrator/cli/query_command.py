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

from fleetrank.foundation.files import make_folder, written_aside
from fleetrank.foundation.vocabulary import Form
from fleetrank.foundation.wording import count_of
from fleetrank.orchestrator.cli.context import Now, current, readable_workspace
from fleetrank.orchestrator.cli.listing import print_table, write_data
from fleetrank.orchestrator.cli.reading_turn import Work, turn_for
from fleetrank.orchestrator.compute.child import QUERY_GRACE_S, QUERY_MEMORY_BYTES, Child
from fleetrank.orchestrator.compute.jobs import Job, JobKind, RefusedError, error_of_child
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.extras import require_libraries

_RowForm = Literal[Form.TABLE, Form.JSON, Form.CSV, Form.PARQUET]
_TIMEOUT_S = 30.0
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

    from fleetrank.analysis.sql_views import described_views
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
