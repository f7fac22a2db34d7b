"""The public API of `import fleetrank`; everything below it may change.

Every error is a `FleetError` with `message` and `remedy`. Libraries are imported when a function
needs them, so that importing the package costs nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fleetrank.foundation.errors import FleetError

if TYPE_CHECKING:
    import polars as pl

    from fleetrank.analysis.report.page import ReportFacts
    from fleetrank.analysis.stored.selection import Selection
    from fleetrank.analysis.tables.table import Table

__all__ = ["FleetError", "load", "query", "report", "table", "tables"]


def load(results: str | Path, *, sweep: str | None = None) -> pl.LazyFrame:
    """Scans every stored attempt, failures included; one row per attempt.

    Args:
        results: the folder `results/` of a workspace.
        sweep: id of one sweep; `None` reads all sweeps.

    Returns:
        The columns of the reference page "Columns". The unit is the last part of a name; null
        means missing. Samples stay on disk until a query needs them.

    Raises:
        FleetError: no measurement or sweep was found, or a newer fleetrank wrote the folder.
    """
    from fleetrank.analysis.stored.columns import DEFAULT_ORIGINS
    from fleetrank.analysis.stored.load import load_measurements

    origins = (*DEFAULT_ORIGINS, "virtual", "simulated")
    return load_measurements(Path(results), sweep=sweep, origins=origins)


def tables() -> tuple[str, ...]:
    """The names that `table` takes, as `fleetrank report show` lists them."""
    from fleetrank.analysis.tables.tables import TABLES

    return tuple(TABLES)


def table(name: str, results: str | Path, selection: Selection | None = None) -> Table:
    """Returns one table of `report show`: its title, its figures as a frame, and its notes.

    Args:
        name: one of `tables()`.
        results: the folder `results/` of a workspace.
        selection: the rows to use; `None` selects all measured and imported rows.

    Raises:
        FleetError: the table is unknown or has no rows; the message has a remedy.
    """
    from fleetrank.analysis.stored.load import load_measurements
    from fleetrank.analysis.stored.selection import Selection
    from fleetrank.analysis.tables.tables import make_table

    chosen = selection or Selection()
    frame = load_measurements(Path(results), sweep=chosen.sweep, origins=chosen.origins)
    return make_table(name, frame, chosen)


def query(
    results: str | Path, sql: str, *, timeout_s: float = 30.0, max_rows: int = 10_000
) -> pl.DataFrame:
    """Answers one SELECT over `measurements`, `devices`, `models` and `sweeps`.

    Raises:
        FleetError: not one SELECT, wrong SQL, or over a limit; the message names the problem.
    """
    from fleetrank.analysis.sql.query import run_query

    return run_query(Path(results), sql, timeout_s=timeout_s, max_rows=max_rows)


def report(results: str | Path, out: str | Path) -> ReportFacts:
    """Writes the report page of a results folder to the file `out`.

    Raises:
        FleetError: there are no results, or `out` cannot be written.
    """
    from fleetrank.analysis.report.page import build_report

    return build_report(Path(results), Path(out))
