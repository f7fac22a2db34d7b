"""What `analysis.stored.exclusions` says of a row, as an expression of DuckDB."""

import duckdb
from duckdb import CaseExpression, ColumnExpression, ConstantExpression, Expression

from fleetrank.analysis.stored.columns import EXCLUDED
from fleetrank.analysis.stored.exclusions import Exclusion
from fleetrank.analysis.stored.patterns import regex_of


def register_measurements(
    connection: duckdb.DuckDBPyConnection, stored: str, exclusions: tuple[Exclusion, ...]
) -> None:
    """Makes the view `measurements`: a relation of stored rows, and why each was left out.

    An expression over each row, not a join: of two relations whose sizes it does not know DuckDB
    may keep the large one in memory.
    """
    excluded = ConstantExpression(None).cast("VARCHAR")
    if exclusions:
        first, *others = exclusions
        cases = CaseExpression(_covers(first), ConstantExpression(first.reason))
        for one in others:
            cases = cases.when(_covers(one), ConstantExpression(one.reason))
        excluded = cases.otherwise(excluded)
    rows = connection.table(stored)
    named = [*(ColumnExpression(name) for name in rows.columns), excluded.alias(EXCLUDED.name)]
    rows.select(*named).create_view("measurements")


def _covers(one: Exclusion) -> Expression:
    is_meant = ColumnExpression("sweep_id") == ConstantExpression(one.sweep_id)
    if one.pattern is None:
        return is_meant
    return is_meant & (_matches("model", one.pattern) | _matches("platform_key", one.pattern))


def _matches(column: str, pattern: str) -> Expression:
    name = ColumnExpression(column)
    if "*" not in pattern:
        return name == ConstantExpression(pattern)
    regex = ConstantExpression(regex_of(pattern))
    return duckdb.FunctionExpression("regexp_matches", name, regex)
