"""The section on components: where the time of an inference goes, by module and by operator."""

import polars as pl

from fleetrank.analysis.report.evidence import Evidence
from fleetrank.analysis.report.html_table import Json
from fleetrank.analysis.report.page_tables import PageTables
from fleetrank.analysis.report.sections.sections import Section, listed

_TABLES = ("components", "operators")
_MOST_BARS = 12
"""Components of one model on one platform; the others are summed, or the chart gets too high."""
_REST = "(all smaller ones)"
_DIGITS = 4
_FIGURES = ("share", "share_low", "share_high", "about_ms")


def component_sections(evidence: Evidence, tables: PageTables) -> list[Section]:
    """The section, if some of the cells were profiled."""
    if not _made(tables):
        return []
    section = Section(
        id="components",
        short="Components",
        title="Where does the time go?",
        lead=(
            "A bar is the share of a component in the time of all kernels, the line its interval "
            "over processes. Profiles are processes apart: no other figure of this page is from a "
            "profile. Where the bars of a component differ, it is one platform's slow part: "
            "`fleetrank report show component-ratios` lists these.",
        ),
        charts="components",
        tables=listed(evidence, tables, *_made(tables), is_statistic=True),
        layout="wide",
    )
    return [section]


def component_points(evidence: Evidence, tables: PageTables) -> Json | None:
    """By kind of component, the largest of each model and platform as columns.

    `m` and `p` are the numbers of model and platform. `None` on a page without profiles.
    """
    names = _made(tables)
    if not names:
        return None
    shown = evidence.shown
    found: Json = {}
    for name in names:
        largest = _largest(tables[name].frame).filter(
            pl.col("model").is_in(list(shown.models))
            & pl.col("platform_key").is_in(list(shown.platforms))
        )
        figures = largest.select(pl.col(_FIGURES).round_sig_figs(_DIGITS))
        found[name] = {
            "m": [shown.model_at[one] for one in largest["model"]],
            "p": [shown.platform_at[one] for one in largest["platform_key"]],
            "name": largest["component"].to_list(),
            **figures.to_dict(as_series=False),
        }
    return found


def _made(tables: PageTables) -> tuple[str, ...]:
    return tuple(name for name in _TABLES if name in tables.made and name not in tables.reasons)


def _largest(shares: pl.DataFrame) -> pl.DataFrame:
    """The components that are among the largest on some platform; the rest is one component."""
    place = ["model", "platform_key"]
    rank = pl.col("share").rank("ordinal", descending=True).over(place)
    kept = shares.filter(rank <= _MOST_BARS).select("model", "component").unique()
    has_bar = shares.join(kept, on=["model", "component"], how="semi")
    rest = shares.join(kept, on=["model", "component"], how="anti")
    summed = rest.group_by(place, maintain_order=True).agg(
        pl.lit(_REST).alias("component"),
        pl.col("share", "about_ms").sum(),
    )
    columns = [*place, "component", *_FIGURES]
    return pl.concat([has_bar.select(columns), summed], how="diagonal").select(columns)
