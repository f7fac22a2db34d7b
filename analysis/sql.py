"""Runs one SELECT over the results, without access to anything else.

DuckDB has types that Arrow, Polars or Python do not have or convert differently. Each causes an
error with its column name here, so no wrong value is shown and Polars does not panic.
"""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import polars as pl

from fleetrank.analysis.errors import AnalysisError, QueryError
from fleetrank.analysis.sql_values import refuse_foreign_types, to_frame
from fleetrank.analysis.sql_views import EVERY_ROW, IS_OF_TABLES, ROWS_OF_TABLES, register_views
from fleetrank.analysis.stored.part_list import damage_in
from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.reading_beside import clock_of_reading
from fleetrank.foundation.wording import count_of

DEFAULT_TIMEOUT_S = 30.0
"""Ten times the duration of a full scan of 10^6 rows on a laptop."""
DEFAULT_MAX_ROWS = 10_000
"""More rows than a person reads; a program sets its own limit."""
_POLL_S = 0.1
"""Between two looks at the time limit."""
_MEMORY_LIMIT = "1GB"
"""Enough to sort 10^6 rows without their samples; small compared with a laptop's memory."""
_NO_MEMORY = ("Out of Memory Error", "bad_alloc", "malloc of size", "Cannot allocate memory")
"""Texts in errors of DuckDB, the C++ library and Arrow, also at the process's own limit."""
_BATCH_ROWS = 2048
"""One vector of DuckDB; with 10,000 samples a row it takes 160 MB."""
_SETTINGS = {
    "memory_limit": _MEMORY_LIMIT,
    # A query that needs more than its memory fails; its data is never written to disk.
    "temp_directory": "",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    # Otherwise a name in the SQL could read a variable of this program.
    "python_enable_replacements": "false",
}
_LISTED = "`fleetrank query` with `tables=true` lists the tables and columns"
_ONLY_SELECT = f"write one SELECT; {_LISTED}"


def run_query(
    results: Path,
    sql: str,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    max_rows: int = DEFAULT_MAX_ROWS,
) -> pl.DataFrame:
    """Answers one SELECT over the relations that `described_views` lists.

    `measurements` has the rows that tables use: not those of simulated or virtual devices, and none
    that is excluded by hand. `all_measurements` has every stored row.

    The connection is new and in memory; file access is off and its configuration is locked before
    the statement is parsed, so that SQL from any source can read only these relations.
    One huge value can exceed both limits: a program with unknown users uses
        `orchestrator.compute.child`, which kills its process.

    Args:
        results: the results folder of a workspace.
        sql: exactly one statement of type SELECT.
        timeout_s: until the query is interrupted, as `time_had_s` counts.
        max_rows: rows beyond it are not fetched; ask for one more to see whether there are any.

    Raises:
        QueryError: not one SELECT, wrong SQL, over a limit, or a value that exists in SQL only; the
            message says which.
        NoDataError: the folder holds no measurement.
        AnalysisError: a newer fleetrank wrote the folder, or a part is damaged.
    """
    frames = query_frames(results, sql, timeout_s=timeout_s, max_rows=max_rows)
    return pl.concat(frames, rechunk=True)


def query_frames(
    results: Path, sql: str, *, timeout_s: float, max_rows: int
) -> Iterator[pl.DataFrame]:
    """Like `run_query`, but yields tables of some thousand rows; at least one table."""
    check_text(sql)
    is_over, has_ended = threading.Event(), threading.Event()
    with duckdb.connect(":memory:", config=dict(_SETTINGS)) as connection:
        register_views(connection, results)
        lock_down(connection)

        had_s = clock_of_reading(time.process_time)

        def interrupt() -> None:
            while not has_ended.wait(min(_POLL_S, timeout_s)):
                if had_s() >= timeout_s:
                    is_over.set()
                    connection.interrupt()
                    return

        threading.Thread(target=interrupt, name="query-limit", daemon=True).start()
        try:
            yield from _frames(connection.sql(_only_select(connection, sql).query), max_rows)
        except (duckdb.Error, pl.exceptions.PolarsError, OSError) as error:
            if is_over.is_set():
                raise too_late(timeout_s) from error
            raise _explained(error, results) from error
        finally:
            has_ended.set()


def check_text(sql: str) -> None:
    """Checks that the statement can be encoded.

    Raises:
        QueryError: it holds a NUL, or half a surrogate pair, as bytes become that are not UTF-8.
    """
    if "\0" in sql or any("\ud800" <= letter <= "\udfff" for letter in sql):
        raise QueryError(
            "the statement is not valid text: it contains a NUL or bytes that are not UTF-8",
            "write it in UTF-8; SQL makes such values with chr(0) and '\\xFF'::BLOB",
        )


def too_late(timeout_s: float) -> QueryError:
    """The query ran into its time limit."""
    return QueryError(
        f"the query took longer than {timeout_s:g} s", "select fewer rows, or increase `timeout_s=`"
    )


def lock_down(connection: duckdb.DuckDBPyConnection) -> None:
    """Ends the connection's access to files and to its own settings."""
    connection.execute(f"SET threads = {min(4, os.cpu_count() or 1)}")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _explained(error: Exception, results: Path) -> AnalysisError:
    """The error for a failed query; while rows are fetched, Arrow has DuckDB's errors as text."""
    text = str(error)
    if any(sign in text for sign in _NO_MEMORY):
        return QueryError(
            f"the query needs more than {_MEMORY_LIMIT} of memory",
            "leave out samples_ns, or select fewer rows with WHERE",
        )
    if text.startswith("Permission Error"):
        return QueryError(
            f"the query uses something outside the results: {text.partition(chr(10))[0]}",
            "files, settings and extensions cannot be used; " + _ONLY_SELECT,
        )
    if (damaged := damage_in(results)) is not None:
        return damaged
    # The message with its hints, without the echo of the statement.
    said = " ".join(text.partition("\n\n")[0].split())
    return QueryError(
        f"the query is invalid: {said}",
        f"{_LISTED}; an unusual type can be cast to VARCHAR",
    )


def _only_select(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise QueryError(f"{len(statements)} statements instead of one", _ONLY_SELECT)
    statement = statements[0]
    # Of some statements DuckDB's Python has no type.
    with failing_as(QueryError, "the statement is not a SELECT", _ONLY_SELECT):
        kind = statement.type
    if kind != duckdb.StatementType.SELECT:
        raise QueryError(f"a {kind.name} statement is not a SELECT", _ONLY_SELECT)
    if statement.named_parameters:
        raise QueryError("the query has parameters ($1, ?)", "write the values into the query")
    return statement


def _frames(relation: duckdb.DuckDBPyRelation, max_rows: int) -> Iterator[pl.DataFrame]:
    refuse_foreign_types(relation)
    # The limit is part of the plan: rows beyond it are not computed.
    reader = relation.limit(max_rows).to_arrow_reader(_BATCH_ROWS)
    is_empty = True
    for batch in reader:
        yield to_frame(batch)
        is_empty = False
    if is_empty:
        yield to_frame(reader.schema.empty_table())


_COUNTED = f"""
    SELECT CASE WHEN excluded IS NULL THEN coalesce(origin, 'of unknown origin')
                ELSE 'excluded' END AS reason, count(*) AS n
    FROM {EVERY_ROW} WHERE ({IS_OF_TABLES}) IS NOT TRUE GROUP BY reason ORDER BY reason
"""  # noqa: S608 - no value in it comes from outside


def left_out_note(results: Path, sql: str) -> str | None:
    """One sentence on the rows that `measurements` leaves out.

    `None` if the statement does not name `measurements`, or every stored row is in it. The count is
    over all stored rows: the conditions of the statement are not applied.

    Args:
        results: the results folder of a workspace.
        sql: a statement that `run_query` has answered.

    Raises:
        AnalysisError: as `register_views`.
    """
    with duckdb.connect(":memory:") as connection:
        # Without any view, DuckDB only parses the statement.
        if ROWS_OF_TABLES not in {name.lower() for name in connection.get_table_names(sql)}:
            return None
        register_views(connection, results)
        counts = connection.execute(_COUNTED).fetchall()
    if not counts:
        return None
    n_rows = sum(n for _, n in counts)
    reasons = ", ".join(f"{n} {reason}" for reason, n in counts)
    verb = "is" if n_rows == 1 else "are"
    return (
        f"{count_of(n_rows, 'stored row')} {verb} not in {ROWS_OF_TABLES} ({reasons}); "
        f"{EVERY_ROW} has every row"
    )
