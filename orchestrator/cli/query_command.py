"""`fleetrank query`: ask the measurements in SQL."""

import sys
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer

from orchestrator.cli.context import current
from orchestrator.cli.listing import print_table
from orchestrator.errors import UsageError

_TIMEOUT_S = 30.0
_MAX_ROWS = 1000
"""More than a terminal is read for; `--max-rows` raises it."""


class QueryFormat(StrEnum):
    """How the rows are printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def query(
    sql: Annotated[str | None, typer.Argument(help="One SELECT.", metavar="SQL")] = None,
    *,
    tables: Annotated[bool, typer.Option("--tables", help="List tables and columns.")] = False,
    format_: Annotated[QueryFormat, typer.Option("--format", help="Form of the answer.")] = (
        QueryFormat.TABLE
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Same as --format json.")] = False,
    timeout_s: Annotated[float, typer.Option(min=0.01, help="Give up after this time.")] = (
        _TIMEOUT_S
    ),
    max_rows: Annotated[int, typer.Option(min=1, help="Print at most so many rows.")] = _MAX_ROWS,
) -> None:
    """Ask measurements, devices, models and sweeps with one SELECT.

    Nothing else is in reach: no file, no setting, no second statement.
    """
    form = QueryFormat.JSON if as_json else format_
    if tables:
        _print_columns(form)
    elif sql is None:
        raise UsageError("no SQL is given", 'ask `fleetrank query "SELECT ..."`, or see --tables')
    else:
        _print_answer(sql, form, timeout_s, max_rows)


def _print_columns(form: QueryFormat) -> None:
    from analysis.sql_views import described_views

    _print_rows([asdict(column) for column in described_views()], form)


def _print_answer(sql: str, form: QueryFormat, timeout_s: float, max_rows: int) -> None:
    from analysis.query import run_query

    results = current().workspace.results
    # One row more than is printed tells whether there are more.
    frame = run_query(results, sql, timeout_s=timeout_s, max_rows=max_rows + 1)
    _print_rows(frame.head(max_rows).to_dicts(), form)
    if frame.height > max_rows:
        print(f"the first {max_rows} rows; --max-rows shows more", file=sys.stderr)


def _print_rows(rows: list[dict[str, object]], form: QueryFormat) -> None:
    if form is QueryFormat.CSV:
        _print_csv(rows)
    else:
        print_table(rows, form is QueryFormat.JSON)


def _print_csv(rows: list[dict[str, object]]) -> None:
    import csv
    import json

    if not rows:
        return
    writer = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {
                name: json.dumps(value, default=str) if isinstance(value, list | dict) else value
                for name, value in row.items()
            }
        )
