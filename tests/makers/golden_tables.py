"""Figures of every table, to hold against recorded ones: `python golden_tables.py RESULTS`."""

import json
import sys
from pathlib import Path

import polars as pl

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.tables import REQUESTS, session_table

Figures = dict[str, list[object]]
Tables = dict[str, Table | AnalysisError]


def tables_of(results: Path) -> Tables:
    """Every table by its request; one that cannot be made is its error."""
    session = Session(load_measurements(results), Selection())
    found: Tables = {}
    for request in REQUESTS:
        asked = session.asked(request.selection(session.selection))
        try:
            found[request.words] = session_table(request.name, asked)
        except AnalysisError as error:
            found[request.words] = error
    return found


def figures_of(results: Path) -> dict[str, Figures | str]:
    """As `figures`, of every table of these results."""
    return figures(tables_of(results))


def figures(tables: Tables) -> dict[str, Figures | str]:
    """Numbers and truth values by request and column; text is wording, and may change.

    A table that cannot be made is the name of its error.
    """
    return {words: _figures(one) for words, one in tables.items()}


def _figures(table: Table | AnalysisError) -> Figures | str:
    if isinstance(table, AnalysisError):
        return type(table).__name__
    kinds = table.frame.schema.items()
    kept = [name for name, kind in kinds if kind.is_numeric() or kind == pl.Boolean]
    return {name: table.frame[name].to_list() for name in kept}


if __name__ == "__main__":
    print(json.dumps(figures_of(Path(sys.argv[1])), indent=0))
