"""The values of a query's answer as Polars columns; other types are refused."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import duckdb
import polars as pl
import pyarrow as pa

from fleetrank.analysis.errors import QueryError
from fleetrank.foundation.errors import is_rust_panic

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
