"""`fleetrank results audit`: checks a data set for suspicious values."""

from typing import Annotated

import polars as pl
import typer

from fleetrank.orchestrator.cli.context import current
from fleetrank.orchestrator.cli.host_turn import reading_turn
from fleetrank.orchestrator.cli.output.listing import AsJson
from fleetrank.orchestrator.store.results import ResultStore


def audit(
    sweeps: Annotated[list[str] | None, typer.Argument(help="Sweeps (default: all).")] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Find duplicates, sentinel values, wrong units and outliers.

    Checks measured, imported and simulated results.
    """
    from fleetrank.analysis.stored.columns import ORIGINS
    from fleetrank.analysis.tables.formats import render
    from fleetrank.analysis.stored.load import load_measurements
    from fleetrank.analysis.stored.selection import Selection
    from fleetrank.analysis.tables.tables import make_table

    store = ResultStore(current().workspace.results)
    with reading_turn("results audit", store.root):
        frame = load_measurements(store.root, origins=ORIGINS)
        if sweeps:
            chosen = [sweep_id for sweep_id in sweeps if store.sweep_record(sweep_id)]
            frame = frame.filter(pl.col("sweep_id").is_in(chosen))
        table = make_table("audit", frame, Selection(origins=ORIGINS))
    print(render(table, "json" if as_json else "table"), end="")
