"""The sections of the page below the answer: their text, charts and tables."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from fleetrank.analysis.figures.points import MAX_PROCESSES
from fleetrank.analysis.report.evidence import Evidence
from fleetrank.analysis.report.html_table import HtmlTable, html_table
from fleetrank.analysis.report.page_tables import PageTables
from fleetrank.analysis.statistics.ranks.disagreement import MIN_SHIFT
from fleetrank.analysis.statistics.transfer.transfer import TransferResult
from fleetrank.analysis.statistics.transfer.transfer_table import (
    frameworks_as_table,
    transfer_as_table,
)
from fleetrank.analysis.stored.cells_table import MIN_REPEATS
from fleetrank.analysis.tables.table import Table

_SMALL_MATRIX = 12
"""Up to this many platforms two matrices are drawn side by side."""
_REPEATABLE = ("rank-sets", "variance", "plans", "stability")
_LEGEND = (
    "Blue: same order. Sand: partly different. Orange: unrelated. Compare FRM with its null. "
    "Interval and null are shown on hover and in the table. Rho has no direction, so both "
    "halves are equal. A platform is not drawn if it shares fewer than five models with each "
    "other platform."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part of the page.

    Attributes:
        short: its name in the contents.
        charts: kind of its charts, a key in `templates/panels.js`; empty without charts.
        overall: which figures a filter does not change; shown while a filter is set.
        is_by_family: whether a legend of the families is above the charts.
        drawn: what it shows beside the cells of the page, with `device` and `origin`.
    """

    id: str
    short: str
    title: str
    lead: tuple[str, ...] = ()
    charts: str = ""
    layout: str = ""
    overall: str = ""
    tables: tuple[HtmlTable, ...] = ()
    notes: tuple[str, ...] = ()
    is_by_family: bool = False
    drawn: pl.DataFrame | None = None


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
            *_pair_tables(evidence, tables),
            *listed(evidence, tables, "frm", is_statistic=True),
        ),
        notes=(
            *evidence.limits,
            *(tables.reasons[name] for name in names if name in tables.reasons),
        ),
        layout="wide" if len(evidence.shown.platforms) <= _SMALL_MATRIX else "full",
    )


def _pair_tables(evidence: Evidence, tables: PageTables) -> Iterator[HtmlTable]:
    """Groups, and the pairs of which both platforms are listed."""
    for name, found, as_table in (
        ("transfer", tables.transfer, transfer_as_table),
        ("frameworks", tables.frameworks, frameworks_as_table),
    ):
        if found is not None:
            table = as_table(_of_paired(found, frozenset(evidence.paired_keys)))
            yield html_table(name, table, evidence.shown, is_statistic=True, said=evidence.said)


def _of_paired(found: TransferResult, keys: Collection[str]) -> TransferResult:
    kept = (
        one for one in found.pairs if one.agreement.source in keys and one.agreement.target in keys
    )
    return replace(found, pairs=tuple(kept))


def latency_section(evidence: Evidence, tables: PageTables) -> Section:
    """Every model on every platform, as distributions of raw samples."""
    return Section(
        id="latency",
        short="Latency",
        title="Latency of every model on every platform",
        lead=(
            "A strip shows all timed runs: the thin part is the middle 98 %, the thick part the "
            "middle 90 %, the dark part the middle half. Each process has the same weight. A "
            "short line marks each process: its median, or the statistic named above the chart. "
            "The symbol is the median of these lines. " + _interval_text(evidence.cells),
            *tables.predicted_lead,
        ),
        charts="latency",
        notes=_samples_note(evidence),
        tables=listed(evidence, tables, "latency", "coldstart", *tables.predicted_names),
        is_by_family=True,
    )


def _samples_note(evidence: Evidence) -> tuple[str, ...]:
    n, n_strips = evidence.shown.cells.height, evidence.quantiles.height
    notes = [*evidence.shown.notes]
    if n_strips < n:
        notes.append(
            f"{n - n_strips:,} of {n:,} values have no raw samples (a tool's summary or a "
            "published figure), so they have a symbol but no strip."
        )
    if max(evidence.cells["n_repeats"]) > MAX_PROCESSES:
        notes.append(
            f"If a value has more than {MAX_PROCESSES} processes, {MAX_PROCESSES} are drawn."
        )
    return tuple(notes)


def _interval_text(cells: pl.DataFrame) -> str:
    counts = sorted({int(n) for n in cells["n_repeats"]})
    few = [n for n in counts if n < MIN_REPEATS]
    if not few:
        return "Its interval over processes is shown on hover and in the table."
    said = " or ".join(str(n) for n in few)
    noun = "repeat carries" if few == [1] else "repeats carry"
    text = f"{said} {noun} no interval: the page shows one from {MIN_REPEATS} processes on."
    return text if few == counts else f"Its interval is shown on hover; {text}"


def memory_section(evidence: Evidence, tables: PageTables) -> Section:
    """Peak memory while running and loading, with the metric."""
    has_any = bool((evidence.shown.cells["peak_memory_bytes"] > 0).any())
    return Section(
        id="memory",
        short="Memory",
        title="Peak memory",
        lead=(
            "The symbol is the peak while running; the ring is the peak while loading. Both are "
            "above the baseline of a warm process. Do not compare figures of different metrics.",
        ),
        charts="memory" if has_any else "",
        tables=listed(evidence, tables, "memory"),
        notes=() if has_any else ("No platform reports memory.",),
        is_by_family=has_any,
    )


def flops_section(evidence: Evidence, tables: PageTables) -> Section:
    """The rank by FLOPs against the measured rank."""
    return Section(
        id="flops",
        short="FLOPs",
        title="For which models are FLOPs misleading?",
        lead=(
            "Left: models ordered by FLOPs. Right: models ordered by measured latency. A rising "
            "line is a model that is faster than its FLOPs suggest; a falling line is a slower "
            f"one. A change of {MIN_SHIFT:g} places or more is coloured and named on both sides.",
        ),
        charts="flops",
        overall="Ranks use all models of a platform. A filter hides lines; it changes no rank.",
        tables=listed(evidence, tables, "disagreement", "shifts", is_statistic=True),
        is_by_family=True,
    )


def frontier_section(evidence: Evidence, tables: PageTables) -> Section:
    """Which of a target's best models a source predicted, and the cost of following the source."""
    lead = (
        "The line is the accuracy-latency frontier measured on the target. Hits are on the "
        "source's frontier too. Misses are on the target's frontier only. False alarms are on "
        "the source's frontier only. Regret is the cost on the target of choosing by the "
        "source: accuracy points lost at a latency budget, or per cent of extra latency at an "
        "accuracy floor. Budgets and floors are the quartiles of the common models."
    )
    found = tables.pareto
    has_any = found is not None and bool(np.isfinite(found.figures["precision"]).any())
    nothing = "No two platforms share five models with a known accuracy."
    return Section(
        id="frontier",
        short="Frontiers",
        title="Would I have chosen the same models?",
        lead=(lead if has_any else nothing,),
        charts="frontier" if has_any else "",
        overall=(
            "Frontiers and regret use all common models of a pair. Filtering only hides points; "
            "frontiers are not recalculated."
        ),
        tables=listed(evidence, tables, "pareto", "regret", is_statistic=True),
        layout="wide",
    )


def quality_section(evidence: Evidence, tables: PageTables) -> Section:
    """How repeatable ranks and values are, and the flags of rows."""
    return Section(
        id="quality",
        short="Stability",
        title="How repeatable are the results, and which carry a flag?",
        lead=(
            "Spread is the range of the process medians divided by their median. A flag marks a "
            "doubtful row; flagged rows are kept. Sets of ranks say which models may be in either "
            "order; the variance says what to measure more of.",
        ),
        tables=(
            html_table(
                "doubts", _doubts(evidence), evidence.shown, is_open=True, is_statistic=True
            ),
            *listed(evidence, tables, *_REPEATABLE, is_statistic=True),
            *listed(evidence, tables, "quality"),
        ),
    )


def dropped_section(evidence: Evidence, tables: PageTables) -> Section:
    """Rows that no figure uses, and cells that were never tried."""
    return Section(
        id="dropped",
        short="Dropped",
        title="What was dropped, and why",
        lead=(
            "A failed attempt is stored as a row with its reason. No figure on this page uses it.",
        ),
        notes=(*evidence.shown.notes, *evidence.limits),
        tables=(
            *listed(evidence, tables, "dropped", is_open=True),
            *_skipped(evidence),
        ),
    )


def _doubts(evidence: Evidence) -> Table:
    """By platform: spread over repeats, and how many models carry each flag."""
    cells, names = evidence.cells, evidence.shown.names
    flags = sorted(cells["flags"].explode().drop_nulls().unique())
    frame = (
        cells.group_by("platform_key")
        .agg(
            pl.len().alias("models"),
            (100 * pl.col("repeats_spread").median()).alias("median_spread_percent"),
            (100 * pl.col("repeats_spread").max()).alias("largest_spread_percent"),
            (pl.col("flags").list.len() == 0).sum().alias("without_doubt"),
            *(pl.col("flags").list.contains(flag).sum().alias(flag) for flag in flags),
        )
        .sort(pl.col("platform_key").replace_strict(list(names), range(len(names))))
    )
    title = "Spread between processes, and models under each flag, by platform"
    return Table(title=title, frame=frame)


def _skipped(evidence: Evidence) -> tuple[HtmlTable, ...]:
    rows = [
        {"sweep": record.sweep_id, "cell": item.label, "reason": item.reason}
        for record in evidence.records
        for item in record.skipped
    ]
    if not rows:
        return ()
    table = Table(title="Cells that the plan skipped", frame=pl.DataFrame(rows))
    return (html_table("skipped", table, evidence.shown, is_open=True),)


def listed(
    evidence: Evidence,
    tables: PageTables,
    *names: str,
    is_open: bool = False,
    is_statistic: bool = False,
) -> tuple[HtmlTable, ...]:
    """Tables of the analysis ready for the template."""
    return tuple(
        html_table(
            name,
            tables[name],
            evidence.shown,
            is_open=is_open,
            is_statistic=is_statistic,
            said=evidence.said,
        )
        for name in names
    )
