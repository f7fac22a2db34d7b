"""`fleetrank query`: ask the measurements in SQL."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analysis.counting import count_of
from orchestrator.cli.context import current
from orchestrator.cli.host_turn import reading_turn
from orchestrator.cli.listing import json_text, print_table
from orchestrator.cli.visible_stream import write_data
from orchestrator.errors import UsageError
from orchestrator.store.durable import replace_file

if TYPE_CHECKING:
    import polars as pl

_TIMEOUT_S = 30.0
_MAX_ROWS = 1000
"""More than a terminal is read for; `--max-rows` raises it."""


class QueryFormat(StrEnum):
    """How the rows are written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


def query(
    sql: Annotated[str | None, typer.Argument(help="One SELECT.", metavar="SQL")] = None,
    *,
    tables: Annotated[
        bool, typer.Option("--tables", help="List tables and columns, with their units.")
    ] = False,
    format_: Annotated[QueryFormat, typer.Option("--format", help="Form of the answer.")] = (
        QueryFormat.TABLE
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Same as --format json.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write to this file, not to standard output.")
    ] = None,
    timeout_s: Annotated[float, typer.Option(min=0.01, help="Give up after this time.")] = (
        _TIMEOUT_S
    ),
    max_rows: Annotated[int, typer.Option(min=1, help="At most so many rows.")] = _MAX_ROWS,
) -> None:
    """Ask measurements, devices, models and sweeps with one SELECT.

    Nothing else is in reach: no file, no setting, no second statement.
    """
    form = QueryFormat.JSON if as_json else format_
    if out is not None and form is QueryFormat.TABLE:
        raise UsageError(
            "--out is for files that programs read", "add --format parquet, csv or json"
        )
    if tables:
        frame = _columns()
    elif sql is None:
        raise UsageError("no SQL is given", 'ask `fleetrank query "SELECT ..."`, or see --tables')
    else:
        frame = _answer(sql, timeout_s, max_rows)
    _write(frame, form, out)


def _columns() -> "pl.DataFrame":
    import polars as pl

    from analysis.sql_views import described_views

    return pl.DataFrame([asdict(column) for column in described_views()])


def _answer(sql: str, timeout_s: float, max_rows: int) -> "pl.DataFrame":
    from analysis.query import run_query

    results = current().workspace.results
    # One row more than is printed tells whether there are more.
    with reading_turn("query", results):
        frame = run_query(results, sql, timeout_s=timeout_s, max_rows=max_rows + 1)
    if frame.height > max_rows:
        print(f"the first {count_of(max_rows, 'row')}; --max-rows shows more", file=sys.stderr)
    return frame.head(max_rows)


def _write(frame: "pl.DataFrame", form: QueryFormat, out: Path | None) -> None:
    if form is QueryFormat.TABLE:
        print_table(frame.to_dicts(), as_json=False)
        return
    if form is QueryFormat.PARQUET and out is None and sys.stdout.isatty():
        raise UsageError("Parquet is not for terminals", "write it to a file with --out FILE")
    content = _ENCODERS[form](frame)
    if out is not None:
        replace_file(out.absolute(), content)
    elif form is QueryFormat.PARQUET:
        sys.stdout.buffer.write(content)
    else:
        write_data(content)


def _parquet(frame: "pl.DataFrame") -> bytes:
    import polars as pl

    from orchestrator.store.parts import to_parquet

    try:
        return to_parquet(frame)
    except pl.exceptions.PolarsError as error:
        raise UsageError(
            f"a column does not fit into Parquet: {error}", "cast it to VARCHAR"
        ) from error


def _json(frame: "pl.DataFrame") -> bytes:
    return (json_text(frame.to_dicts()) + "\n").encode()


def _csv(frame: "pl.DataFrame") -> bytes:
    import csv
    import io
    import json

    text = io.StringIO()
    writer = csv.DictWriter(text, frame.columns, lineterminator="\n")
    writer.writeheader()
    for row in frame.to_dicts():
        writer.writerow(
            {
                name: json.dumps(value, default=str) if isinstance(value, list | dict) else value
                for name, value in row.items()
            }
        )
    return text.getvalue().encode()


_ENCODERS: Mapping[QueryFormat, Callable[["pl.DataFrame"], bytes]] = {
    QueryFormat.JSON: _json,
    QueryFormat.CSV: _csv,
    QueryFormat.PARQUET: _parquet,
}
