"""One SELECT over the results, with nothing else in reach."""

import os
import threading
from pathlib import Path

import duckdb
import polars as pl

from analysis.errors import QueryError
from analysis.part_files import damage_error, damaged_part_of
from analysis.sql_views import register_views

DEFAULT_TIMEOUT_S = 30.0
"""Ten times what a full scan of 10^6 rows takes on a laptop."""
DEFAULT_MAX_ROWS = 10_000
"""More than a person reads; a program asks for what it needs."""
_MEMORY_LIMIT = "1GB"
"""Enough to sort 10^6 rows without their samples; small beside a laptop's memory."""
_SETTINGS = {
    "memory_limit": _MEMORY_LIMIT,
    # Nothing is spilled: a query that needs more than its memory is refused, not written to disk.
    "temp_directory": "",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    # Otherwise a name in the SQL may reach a variable of this program.
    "python_enable_replacements": "false",
}
_ONLY_SELECT = "ask with one SELECT; `fleetrank query --tables` lists the tables and columns"


def run_query(
    results: Path,
    sql: str,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    max_rows: int = DEFAULT_MAX_ROWS,
) -> pl.DataFrame:
    """Answers one SELECT over `measurements`, `devices`, `models` and `sweeps`.

    The connection is new and in memory; file access is off and its configuration is locked before
    the statement is parsed, so that SQL from anywhere can read these relations and nothing else.

    Args:
        results: the results folder of a workspace.
        sql: exactly one statement of type SELECT.
        timeout_s: wall clock until the query is interrupted.
        max_rows: rows beyond it are not fetched; ask for one more to see whether there are any.

    Raises:
        QueryError: not one SELECT, wrong SQL, or over a limit; the message says which.
        NoDataError: the folder holds no measurement.
        AnalysisError: a newer fleetrank wrote the folder, or a part is damaged.
    """
    with duckdb.connect(":memory:", config=dict(_SETTINGS)) as connection:
        register_views(connection, results)
        _lock(connection)
        try:
            return _answer(connection, _only_select(connection, sql), timeout_s, max_rows)
        except duckdb.InterruptException as error:
            raise QueryError(
                f"the query took longer than {timeout_s:g} s", "narrow it, or raise --timeout-s"
            ) from error
        except duckdb.OutOfMemoryException as error:
            raise QueryError(
                f"the query needs more than {_MEMORY_LIMIT} of memory",
                "leave out samples_ns, or narrow it with WHERE",
            ) from error
        except duckdb.PermissionException as error:
            raise QueryError(
                f"the query reaches outside the results: {_first_line(error)}",
                "files, settings and extensions are out of reach; " + _ONLY_SELECT,
            ) from error
        except (duckdb.Error, pl.exceptions.PolarsError) as error:
            if (damaged := damaged_part_of(results)) is not None:
                raise damage_error(damaged) from error
            raise QueryError(
                f"the query does not work: {_first_paragraph(error)}",
                "`fleetrank query --tables` lists the tables and columns; an unusual type can be "
                "cast to VARCHAR",
            ) from error


def _lock(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute(f"SET threads = {min(4, os.cpu_count() or 1)}")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _only_select(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise QueryError(f"{len(statements)} statements where one is wanted", _ONLY_SELECT)
    statement = statements[0]
    if statement.type != duckdb.StatementType.SELECT:
        raise QueryError(f"a {statement.type.name} statement is not a SELECT", _ONLY_SELECT)
    if statement.named_parameters:
        raise QueryError("the query has parameters ($1, ?)", "write the values into the query")
    return statement


def _answer(
    connection: duckdb.DuckDBPyConnection,
    statement: duckdb.Statement,
    timeout_s: float,
    max_rows: int,
) -> pl.DataFrame:
    timer = threading.Timer(timeout_s, connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        # The limit is part of the plan: rows beyond it are never made.
        table = connection.sql(statement.query).limit(max_rows).to_arrow_table()
    finally:
        timer.cancel()
    frame = pl.from_arrow(table)
    return frame if isinstance(frame, pl.DataFrame) else frame.to_frame()


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _first_paragraph(error: Exception) -> str:
    """The message with its hints, without the echo of the statement."""
    return " ".join(str(error).partition("\n\n")[0].split())
