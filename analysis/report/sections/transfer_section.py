"""How far ranks carry over between platforms: two matrices and their tables."""

from collections.abc import Collection, Iterator
from dataclasses import replace

from fleetrank.analysis.report.evidence import Evidence
from fleetrank.analysis.report.html_table import HtmlTable, html_table
from fleetrank.analysis.report.page_tables import PageTables
from fleetrank.analysis.report.sections.sections import Section, listed
from fleetrank.analysis.statistics.transfer.transfer import (
    TransferResult,
    frameworks_as_table,
    transfer_as_table,
)

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
    has_pairs = tables.transfer is not None and bool(tables.transfer.pairs)
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
            *_tables(evidence, tables),
            *listed(evidence, tables, "frm", is_statistic=True),
        ),
        notes=(
            *evidence.limits,
            *(tables.reasons[name] for name in names if name in tables.reasons),
        ),
        layout="wide" if len(evidence.shown.platforms) <= _SMALL_MATRIX else "full",
    )


def _tables(evidence: Evidence, tables: PageTables) -> Iterator[HtmlTable]:
    """Groups, and the pairs of which both platforms are listed."""
    for name, found, as_table in (
        ("transfer", tables.transfer, transfer_as_table),
        ("frameworks", tables.frameworks, frameworks_as_table),
    ):
        if found is not None:
            table = as_table(_of_paired(found, frozenset(evidence.paired_keys)))
            yield html_table(name, table, evidence.shown, is_statistic=True, said=evidence.said)


def _of_paired(found: TransferResult, keys: Collection[str]) -> TransferResult:
    listed = (
        one for one in found.pairs if one.agreement.source in keys and one.agreement.target in keys
    )
    return replace(found, pairs=tuple(listed))
