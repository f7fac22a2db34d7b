"""The bars of the page's charts about components and operators."""

import polars as pl

from fleetrank.analysis.report.evidence import Evidence
from fleetrank.analysis.report.html_table import Json
from fleetrank.analysis.report.page_tables import PageTables
from fleetrank.analysis.report.points import DIGITS, PLACE

_BAR_TABLES = {"components": "components", "operators": "components split=operator"}
"""A choice of the chart of components to the table that has its bars."""
_MOST_BARS = 12
"""Components of one model on one platform; the others are summed, or the chart gets too high."""
_REST = "(all smaller ones)"
_SHARES = ("share", "share_low", "share_high", "about_ms")


def component_points(evidence: Evidence, tables: PageTables) -> Json | None:
    """By kind of component, the largest of each model and platform as columns.

    `m` and `p` are the numbers of model and platform. `None` on a page without profiles.
    """
    shown = evidence.shown
    found: Json = {}
    for choice, name in _BAR_TABLES.items():
        if not tables.answered(name):
            continue
        largest = _largest(tables[name].frame).filter(
            pl.col("model").is_in(list(shown.models))
            & pl.col("platform_key").is_in(list(shown.platforms))
        )
        figures = largest.select(pl.col(_SHARES).round_sig_figs(DIGITS))
        found[choice] = {
            "m": [shown.model_at[one] for one in largest["model"]],
            "p": [shown.platform_at[one] for one in largest["platform_key"]],
            "name": largest["component"].to_list(),
            **figures.to_dict(as_series=False),
        }
    return found or None


def _largest(shares: pl.DataFrame) -> pl.DataFrame:
    """The components that are among the largest on some platform; the rest is one component."""
    rank = pl.col("share").rank("ordinal", descending=True).over(PLACE)
    kept = shares.filter(rank <= _MOST_BARS).select("model", "component").unique()
    has_bar = shares.join(kept, on=["model", "component"], how="semi")
    rest = shares.join(kept, on=["model", "component"], how="anti")
    summed = rest.group_by(PLACE, maintain_order=True).agg(
        pl.lit(_REST).alias("component"),
        pl.col("share", "about_ms").sum(),
    )
    columns = [*PLACE, "component", *_SHARES]
    return pl.concat([has_bar.select(columns), summed], how="diagonal").select(columns)
