"""Runs one SELECT over the results, without access to anything else.

DuckDB has types that Arrow, Polars or Python do not have or convert differently. Each causes an
error with its column name here, so no wrong value is shown and Polars does not panic.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import duckdb
import polars as pl
import pyarrow as pa

from fleetrank.analysis.errors import AnalysisError, QueryError
from fleetrank.analysis.stored.columns import DEFAULT_ORIGINS, EXCLUDED, READ_COLUMNS, SCHEMA
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.part_list import damage_in
from fleetrank.analysis.stored.side_tables import SIDE_TABLES, read_side
from fleetrank.analysis.stored.sweep_record import read_record
from fleetrank.analysis.tables.formats import UNITS
from fleetrank.foundation.errors import count_of, failing_as, is_rust_panic
from fleetrank.foundation.lease import clock_of_reading

# The relations for SQL: stored rows, as tables read them, and views of them.

ROWS_OF_TABLES = "measurements"
"""The view with the rows that tables use without options."""
EVERY_ROW = "all_measurements"
"""The view with every stored row."""
IS_OF_TABLES = f"{EXCLUDED.name} IS NULL AND list_contains({list(DEFAULT_ORIGINS)}, origin)"
"""The condition of SQL for the rows that tables use without options; its words are our own."""
_DEVICE_FACTS = (
    "device_model", "tier", "origin", "host", "os", "arch", "cpu_model", "logical_cores",
    "physical_cores", "memory_bytes", "is_virtual_machine", "clock_max_mhz", "governor",
)  # fmt: skip
_MODEL_FACTS = (
    "family", "has_attention", "card_sha256", "input_size", "macs", "flops", "flops_method",
    "parameters", "accuracy_top1", "accuracy_source",
)  # fmt: skip
_RECORDS: Mapping[str, str] = {
    "state": "state of the sweep",
    "command_line": "command that started it",
}
"""Facts from the record of a sweep; both can be missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewColumn:
    """One column of one relation, for display; `unit` is `None` without a unit."""

    view: str
    column: str
    dtype: str
    unit: str | None
    doc: str


def register_views(connection: duckdb.DuckDBPyConnection, results: Path) -> None:
    """Registers the relations of `described_views` with a connection.

    `measurements` has the rows that tables use without options: real origins, nothing excluded by
    hand. `all_measurements` has every stored row; `devices`, `models` and `sweeps` count these.
    Each side table is a view with its name.

    Polars reads the columns and rows that a query needs, so DuckDB itself needs no access to the
    file system. The rows are those of `load_measurements`: exclusions, workloads and names of
    platforms cannot differ from those of tables.

    Raises:
        NoDataError: no Parquet file exists, also of no side table.
        AnalysisError: a newer fleetrank wrote the folder, or its exclusions are damaged.
    """
    connection.register(EVERY_ROW, load_measurements(results, origins=None))
    connection.execute(f"CREATE VIEW {ROWS_OF_TABLES} AS FROM {EVERY_ROW} WHERE {IS_OF_TABLES}")
    connection.register("sweep_records", _sweep_records(results / "sweeps"))
    connection.execute(f"CREATE VIEW devices AS {_newest_facts('device', _DEVICE_FACTS)}")
    connection.execute(f"CREATE VIEW models AS {_newest_facts('model', _MODEL_FACTS)}")
    connection.execute(f"CREATE VIEW sweeps AS {_SWEEPS}")
    for name, table in SIDE_TABLES.items():
        connection.register(name, read_side(results, table))


def described_views() -> list[ViewColumn]:
    """Every column of the relations with its type and meaning."""
    described = [
        _described(view, column.name, _sql_type(column.dtype), _doc(column.doc, column.values))
        for view in (ROWS_OF_TABLES, EVERY_ROW)
        for column in READ_COLUMNS
    ]
    side = [
        _described(name, column.name, _sql_type(column.dtype), _doc(column.doc, column.values))
        for name, table in SIDE_TABLES.items()
        for column in table.columns
    ]
    docs = {column.name: column.doc for column in READ_COLUMNS}
    for view, key, facts in (
        ("devices", "device", _DEVICE_FACTS),
        ("models", "model", _MODEL_FACTS),
    ):
        described.extend(
            _described(view, name, _sql_type(SCHEMA[name]), docs[name]) for name in (key, *facts)
        )
        described.extend(_COUNTS[view])
    return [*described, *_COUNTS["sweeps"], *side]


def _described(view: str, column: str, dtype: str, doc: str) -> ViewColumn:
    return ViewColumn(view=view, column=column, dtype=dtype, unit=unit_of(column), doc=doc)


_UNITS: Mapping[str, str] = {
    **UNITS,
    "share": "0 to 1", "top1": "%", "1min": "runnable processes", "size": "pixels",
    "macs": "operations", "flops": "operations",
}  # fmt: skip
_MOMENTS = ("before", "after")


def unit_of(column: str) -> str | None:
    """The unit that a column's name ends in; `None` for names, counts and flags."""
    words = column.split("_")
    if words[-1] in _MOMENTS:
        words.pop()
    return _UNITS.get(words[-1])


_TALLY = "count(*) AS n_attempts, count(*) FILTER (status = 'ok') AS n_ok"
_SPAN = "min(started_utc) AS first_utc, max(finished_utc) AS last_utc"
_SWEEPS = f"""
    SELECT m.sweep_id, {_TALLY}, count(DISTINCT cell_key) AS n_cells,
           count(DISTINCT device) AS n_devices, count(DISTINCT model) AS n_models, {_SPAN},
           any_value(r.state) AS state, any_value(r.command_line) AS command_line,
           any_value(fleetrank_version) AS fleetrank_version,
           any_value(git_commit) AS git_commit, any_value(seed) AS seed
    FROM {EVERY_ROW} m LEFT JOIN sweep_records r USING (sweep_id)
    GROUP BY m.sweep_id ORDER BY first_utc DESC, m.sweep_id
"""  # noqa: S608 - no value in it comes from outside
_SPAN_COLUMNS = (
    ("first_utc", "TIMESTAMPTZ", "start of the first attempt"),
    ("last_utc", "TIMESTAMPTZ", "end of the last attempt"),
)
_TALLY_COLUMNS = (
    ("n_attempts", "BIGINT", "stored rows of every origin, including failures"),
    ("n_ok", "BIGINT", "rows with a successful measurement"),
)
_SWEEP_COLUMNS = (
    ("sweep_id", "VARCHAR", "the sweep"),
    *_TALLY_COLUMNS,
    ("n_cells", "BIGINT", "cells with at least one attempt"),
    ("n_devices", "BIGINT", "devices with at least one attempt"),
    ("n_models", "BIGINT", "models with at least one attempt"),
    *_SPAN_COLUMNS,
    *((name, "VARCHAR", doc) for name, doc in _RECORDS.items()),
    ("fleetrank_version", "VARCHAR", "version that wrote the rows"),
    ("git_commit", "VARCHAR", "commit of the workspace"),
    ("seed", "BIGINT", "seed of the sweep"),
)
_COUNTS: Mapping[str, list[ViewColumn]] = {
    "devices": [_described("devices", *row) for row in (*_TALLY_COLUMNS, *_SPAN_COLUMNS)],
    "models": [_described("models", *row) for row in (*_TALLY_COLUMNS, *_SPAN_COLUMNS)],
    "sweeps": [_described("sweeps", *row) for row in _SWEEP_COLUMNS],
}


def _newest_facts(key: str, facts: tuple[str, ...]) -> str:
    """One row per key with the last known value of each fact: a device may get a new system."""
    newest = ", ".join(f"arg_max({name}, started_utc) AS {name}" for name in facts)
    return (
        f"SELECT {key}, {newest}, {_TALLY}, {_SPAN} FROM {EVERY_ROW} "  # noqa: S608 - own names
        f"WHERE {key} IS NOT NULL GROUP BY {key} ORDER BY {key}"
    )


def _sweep_records(folder: Path) -> pl.DataFrame:
    """The records of the sweeps; if one cannot be read, its sweep has no facts from it."""
    records = [read_record(path) for path in sorted(folder.glob("*.json"))]
    rows = [
        {"sweep_id": one.sweep_id, "state": one.state, "command_line": one.command_line}
        for one in records
    ]
    return pl.DataFrame(rows, schema=dict.fromkeys(("sweep_id", *_RECORDS), pl.String))


_SQL_TYPES: Mapping[pl.DataType, str] = {
    pl.String(): "VARCHAR",
    pl.Int64(): "BIGINT",
    pl.Float64(): "DOUBLE",
    pl.Boolean(): "BOOLEAN",
    pl.List(pl.Int64): "BIGINT[]",
    pl.List(pl.String): "VARCHAR[]",
}


def _sql_type(dtype: pl.DataType) -> str:
    return _SQL_TYPES.get(dtype, "TIMESTAMPTZ")


def _doc(doc: str, values: tuple[str, ...] | None) -> str:
    return doc if values is None else f"{doc}: {', '.join(values)}"


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


_KEPT = frozenset(
    {
        "boolean", "tinyint", "smallint", "integer", "bigint", "hugeint",
        "utinyint", "usmallint", "uinteger", "ubigint", "float", "double", "decimal",
        "varchar", "blob", "uuid", "enum", "null", "date", "time",
        "timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "timestamp with time zone",
    }
)  # fmt: skip
"""Types whose values are converted correctly. Seen with DuckDB 2.0 and Polars 2.1: a UHUGEINT
becomes -1, a TIMETZ loses its zone, a BIT and a BIGNUM become bytes in DuckDB's format."""
_NESTED = frozenset({"list", "array", "map", "struct"})
_CAST = "cast it to VARCHAR"

Made = TypeVar("Made")


def refuse_foreign_types(relation: duckdb.DuckDBPyRelation) -> None:
    """Rejects columns whose values would be converted wrongly.

    Raises:
        QueryError: names the first such column.
    """
    for name, dtype in zip(relation.columns, relation.types, strict=True):
        if (foreign := _foreign(dtype)) is not None:
            raise QueryError(
                f"column {name!r} has the type {foreign}, which exists in SQL only", _CAST
            )


def to_frame(batch: pa.RecordBatch | pa.Table) -> pl.DataFrame:
    """A batch as a table.

    Raises:
        QueryError: a value or a name has no form outside of SQL.
    """

    def convert() -> pl.DataFrame:
        batch.validate(full=True)
        frame = pl.from_arrow(batch)
        return frame if isinstance(frame, pl.DataFrame) else frame.to_frame()

    return _converted(convert)


def rows_of(frame: pl.DataFrame) -> Iterator[dict[str, object]]:
    """The rows of a table, a few hundred in memory at a time.

    Raises:
        QueryError: a value has no form in Python, such as a date beyond the year 9999.
    """
    rows = frame.iter_rows(named=True)
    end: dict[str, object] = {}
    while (row := _converted(lambda: next(rows, end))) is not end:
        yield row


def _converted(convert: Callable[[], Made]) -> Made:
    try:
        return convert()
    except MemoryError:
        raise  # Arrow's is an `ArrowException`, too
    except (pa.ArrowException, pl.exceptions.PolarsError, ValueError, OverflowError) as error:
        raise _no_form(error) from error
    except BaseException as error:
        if is_rust_panic(error):
            raise _no_form(error) from error
        raise


def _no_form(error: BaseException) -> QueryError:
    reason = str(error).partition("\n")[0]
    return QueryError(
        f"a value has no form outside of SQL: {reason}",
        "dates go up to the year 9999, times of day are below 24:00, integers have up to 38 "
        "digits; cast the column to VARCHAR",
    )


def _foreign(dtype: duckdb.sqltypes.DuckDBPyType) -> str | None:
    """The type in a column, or nested in it, that is not converted correctly."""
    if dtype.id in _KEPT:
        return None
    if dtype.id not in _NESTED:
        return str(dtype)
    parts = [part for _, part in dtype.children if not isinstance(part, int | list)]
    return next((found for part in parts if (found := _foreign(part)) is not None), None)


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
