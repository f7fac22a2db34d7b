"""How much slower the slowest model of a platform is than its fastest."""

import polars as pl

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.tables.table import Table


def spread_table(session: Session) -> Table:
    """One row per platform."""
    scope = session.cells
    shown = scope.cells.group_by("platform_key").agg(
        n_models=pl.len(),
        slowest_over_fastest=pl.col("latency_ns").max() / pl.col("latency_ns").min(),
    )
    return Table(title="Spread", frame=shown.sort("platform_key"), notes=scope.notes)
