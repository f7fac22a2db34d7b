"""The parts of the page below its answer: what each says, charts, and the tables behind them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import polars as pl

from fleetrank.analysis.figures.latency import MAX_PROCESSES
from fleetrank.analysis.report.evidence import Evidence
from fleetrank.analysis.report.html_table import HtmlTable, html_table
from fleetrank.analysis.report.page_tables import PageTables
from fleetrank.analysis.statistics.ranks.disagreement import MIN_SHIFT
from fleetrank.analysis.stored.cells_table import MIN_REPEATS
from fleetrank.analysis.tables.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part of the page.

    Attributes:
        short: its name in the contents.
        charts: kind of its charts, as `templates/panels.js` knows them; empty for none.
        overall: what a filter does not change here; shown while one is set.
        is_by_family: a legend of the families stands above the charts.
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


def latency_section(evidence: Evidence, tables: PageTables) -> Section:
    """Every model on every platform, as distributions of raw samples."""
    return Section(
        id="latency",
        short="Latency",
        title="Latency of every model on every platform",
        lead=(
            "A strip shows every timed run: its thin part holds the middle 98 % of them, the thick "
            "one the middle 90 %, the dark one the middle half; each process counts alike. The "
            "symbol is the median of the process medians, each of which is a short line across. "
            + _interval_text(evidence.cells),
        ),
        charts="latency",
        notes=_samples_note(evidence),
        tables=listed(evidence, tables, "latency", "coldstart"),
        is_by_family=True,
    )


def _samples_note(evidence: Evidence) -> tuple[str, ...]:
    n, n_strips = evidence.shown.cells.height, evidence.quantiles.height
    notes = [*evidence.shown.notes]
    if n_strips < n:
        notes.append(
            f"{n - n_strips:,} of {n:,} values come without raw samples (a tool's summary, a "
            "published figure): they have a symbol and no strip."
        )
    if max(evidence.cells["n_repeats"]) > MAX_PROCESSES:
        notes.append(f"Of more than {MAX_PROCESSES} processes {MAX_PROCESSES} are drawn.")
    return tuple(notes)


def _interval_text(cells: pl.DataFrame) -> str:
    counts = sorted({int(n) for n in cells["n_repeats"]})
    few = [n for n in counts if n < MIN_REPEATS]
    if not few:
        return "Its interval over processes is shown on hover and in the table."
    said = " or ".join(str(n) for n in few)
    noun = "repeat carries" if few == [1] else "repeats carry"
    text = f"{said} {noun} no interval: below {MIN_REPEATS} processes the page shows none."
    return text if few == counts else f"Its interval is shown on hover; {text}"


def memory_section(evidence: Evidence, tables: PageTables) -> Section:
    """Peaks while running and loading, with what they count."""
    has_any = bool((evidence.shown.cells["peak_memory_bytes"] > 0).any())
    return Section(
        id="memory",
        short="Memory",
        title="Peak memory",
        lead=(
            "The symbol is the peak while running, the ring the peak while loading, both over "
            "the baseline of a warm process. Figures of different metrics do not compare.",
        ),
        charts="memory" if has_any else "",
        tables=listed(evidence, tables, "memory"),
        notes=() if has_any else ("No platform reports memory.",),
        is_by_family=has_any,
    )


def flops_section(evidence: Evidence, tables: PageTables) -> Section:
    """Where FLOPs misjudge the measured order."""
    return Section(
        id="flops",
        short="FLOPs",
        title="Which models do FLOPs misjudge?",
        lead=(
            "On the left the models stand in the order of their FLOPs, on the right in the order "
            "measured. A line that rises is a model faster than its FLOPs say, one that falls is "
            f"slower; from {MIN_SHIFT:g} places on it is coloured and named on both sides.",
        ),
        charts="flops",
        overall="Ranks are among all models of a platform: a filter hides lines, it ranks nothing "
        "anew.",
        tables=listed(evidence, tables, "disagreement", "shifts", is_statistic=True),
        is_by_family=True,
    )


def frontier_section(evidence: Evidence, tables: PageTables) -> Section:
    """Which of a target's best models a source had foretold, and what choosing there costs."""
    lead = (
        "The line is the target's own frontier of accuracy against latency. Hits were on the "
        "source's frontier too, misses were not, and false alarms only looked best on the source. "
        "Regret is what choosing by the source costs on the target: accuracy points lost at a "
        "latency budget, per cent of extra latency at an accuracy floor; budgets and floors are "
        "the quartiles of the models in common."
    )
    has_any = bool(tables.pair_rows("pareto")["precision"].is_not_null().any())
    nothing = "No two platforms share five models with a known accuracy."
    return Section(
        id="frontier",
        short="Frontiers",
        title="Would I have chosen the same models?",
        lead=(lead if has_any else nothing,),
        charts="frontier" if has_any else "",
        overall="Frontiers and regret are over all models a pair has in common: a filter hides "
        "points, it computes no frontier anew.",
        tables=listed(evidence, tables, "pareto", "regret", is_statistic=True),
        layout="wide",
    )


def quality_section(evidence: Evidence, tables: PageTables) -> Section:
    """How steady ranks and values are, and doubts about rows."""
    return Section(
        id="quality",
        short="Stability",
        title="How steady is it, and what is in doubt?",
        lead=(
            "Spread is the range of the process medians over their median. Flags are kept with "
            "their rows and shown; they drop nothing.",
        ),
        tables=(
            html_table(
                "doubts", _doubts(evidence), evidence.shown, is_open=True, is_statistic=True
            ),
            *listed(evidence, tables, "stability", is_statistic=True),
            *listed(evidence, tables, "quality"),
        ),
    )


def dropped_section(evidence: Evidence, tables: PageTables) -> Section:
    """Rows that enter no figure, and cells that were never tried."""
    return Section(
        id="dropped",
        short="Dropped",
        title="What was dropped, and why",
        lead=(
            "A failed attempt is kept as a row with its reason, and enters no figure on this page.",
        ),
        notes=(*evidence.shown.notes, *evidence.limits),
        tables=(
            *listed(evidence, tables, "dropped", is_open=True),
            *_skipped(evidence),
        ),
    )


def _doubts(evidence: Evidence) -> Table:
    """By platform: spread over repeats, and how many models carry each flag that anybody has."""
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
        {"sweep": str(record.get("sweep_id")), "cell": str(item.get("label")),
         "reason": str(item.get("reason"))}
        for record in evidence.records
        for item in _objects(record.get("skipped"))
    ]  # fmt: skip
    if not rows:
        return ()
    table = Table(title="Cells that the plan skipped", frame=pl.DataFrame(rows))
    return (html_table("skipped", table, evidence.shown, is_open=True),)


def _objects(value: object) -> Iterable[Mapping[str, object]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


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
