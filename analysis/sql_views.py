"""The relations for SQL: stored rows, as tables read them, and views of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb
import polars as pl

from fleetrank.analysis.stored.columns import DEFAULT_ORIGINS, EXCLUDED, READ_COLUMNS, SCHEMA
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.side_tables import SIDE_TABLES, read_side
from fleetrank.analysis.stored.sweep_record import read_record
from fleetrank.analysis.tables.values import UNITS

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
