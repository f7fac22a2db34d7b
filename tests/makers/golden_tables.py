"""Figures of every table, to hold against recorded ones: `python golden_tables.py RESULTS`."""

import json
import sys
from pathlib import Path

import polars as pl

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import REQUESTS, session_table

Figures = dict[str, list[object]]


def figures_of(results: Path) -> dict[str, Figures | str]:
    """Numbers and truth values by request and column; text is wording, and may change.

    A table that cannot be made is the name of its error.
    """
    session = Session(load_measurements(results), Selection())
    found: dict[str, Figures | str] = {}
    for request in REQUESTS:
        asked = session.asked(request.selection(session.selection))
        try:
            table = session_table(request.name, asked).frame
        except AnalysisError as error:
            found[request.words] = type(error).__name__
            continue
        kept = [c for c, kind in table.schema.items() if kind.is_numeric() or kind == pl.Boolean]
        found[request.words] = {column: table[column].to_list() for column in kept}
    return found


if __name__ == "__main__":
    print(json.dumps(figures_of(Path(sys.argv[1])), indent=0))
