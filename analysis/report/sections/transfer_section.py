"""How far ranks carry over between platforms: two matrices and their tables."""

from dataclasses import replace

import polars as pl

from fleetrank.analysis.report.evidence import Evidence
from fleetrank.analysis.report.html_table import html_table
from fleetrank.analysis.report.page_tables import PageTables
from fleetrank.analysis.report.sections.sections import Section, listed
from fleetrank.analysis.tables.table import Table

_SMALL_MATRIX = 12
"""Up to this many platforms two matrices are drawn side by side."""
_LEGEND = (
    "Blue: same order. Sand: partly different. Orange: unrelated. Compare FRM with its null. "
    "Interval and null are shown on hover and in the table. Rho has no direction, so both "
    "halves are equal. A platform is not drawn if it shares fewer than five models with each "
    "other platform."
)


def transfer_section(evidence: Evidence, tables: PageTables) -> Section:
    """Matrices of latency and FRM over the chosen platforms, and their tables."""
    has_pairs = not tables.pair_rows("transfer").is_empty()
    names = ("transfer", "frameworks")
    return Section(
        id="transfer",
        short="Transfer",
        title="How far do ranks carry over from platform to platform?",
        lead=(_LEGEND if has_pairs else "No pair of platforms can be compared.",),
        charts="transfer" if has_pairs else "",
        overall=(
            "Each figure uses all models that two platforms share. Filtering only hides "
            "platforms; correlations are not recalculated."
        ),
        tables=(
            *(
                html_table(
                    name,
                    _of_paired(tables[name], evidence),
                    evidence.shown,
                    is_statistic=True,
                    said=evidence.said,
                )
                for name in names
                if name not in tables.reasons
            ),
            *listed(evidence, tables, "frm", is_statistic=True),
        ),
        notes=(
            *evidence.limits,
            *(tables.reasons[name] for name in names if name in tables.reasons),
        ),
        layout="wide" if len(evidence.shown.platforms) <= _SMALL_MATRIX else "full",
    )


def _of_paired(table: Table, evidence: Evidence) -> Table:
    """Groups, and the pairs of which both platforms are listed."""
    keys = list(evidence.paired_keys)
    both = pl.col("source").is_in(keys) & pl.col("target").is_in(keys)
    frame = table.frame.filter((pl.col("level") != "pair") | both)
    return replace(table, frame=frame)
