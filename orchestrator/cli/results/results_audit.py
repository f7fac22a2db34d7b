"""`fleetrank results audit`: checks a data set for suspicious values."""

import dataclasses
from typing import Annotated

import polars as pl
import typer

from fleetrank.orchestrator.cli.context import current
from fleetrank.orchestrator.cli.host_turn import reading_turn
from fleetrank.orchestrator.cli.output.listing import AsJson
from fleetrank.orchestrator.cli.report.selector_options import with_selectors
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.workspace.selectors import Selectors


@with_selectors("source", "source_tier", "runtime", "precision", "family", "model")
def audit(
    sweeps: Annotated[list[str] | None, typer.Argument(help="Sweeps (default: all).")] = None,
    *,
    what: Annotated[
        list[str] | None,
        typer.Option(
            "--what", metavar="KIND", help="Only this kind, such as unit-slip; may be repeated."
        ),
    ] = None,
    as_json: AsJson = False,
    selectors: Selectors,
) -> None:
    """Find duplicates, sentinel values, wrong units and outliers.

    Checks measured, imported and simulated results. The most harmful kind of finding comes first.
    """
    from fleetrank.analysis.stored.columns import ORIGINS
    from fleetrank.analysis.tables.formats import render
    from fleetrank.analysis.stored.load import load_measurements
    from fleetrank.analysis.tables.tables import make_table

    settings = (("what", ",".join(what)),) if what else ()
    selection = dataclasses.replace(selectors.selection(), origins=ORIGINS, settings=settings)
    store = ResultStore(current().workspace.results)
    with reading_turn("results audit", store.root):
        frame = load_measurements(store.root, origins=ORIGINS)
        if sweeps:
            chosen = [sweep_id for sweep_id in sweeps if store.sweep_record(sweep_id)]
            frame = frame.filter(pl.col("sweep_id").is_in(chosen))
        table = make_table("audit", frame, selection)
    print(render(table, "json" if as_json else "table"), end="")
