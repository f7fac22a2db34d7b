"""What a query does not see: the stored rows that `measurements` leaves out."""

from pathlib import Path

import duckdb

from fleetrank.analysis.sql.sql_views import EVERY_ROW, IS_OF_TABLES, ROWS_OF_TABLES, register_views
from fleetrank.foundation.wording import count_of

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
        sql: a statement that `query.run_query` has answered.

    Raises:
        AnalysisError: as `sql_views.register_views`.
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
