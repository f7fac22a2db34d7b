"""The parts of the page below its answer: figures, the tables behind them, and their notes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl
from markupsafe import Markup

from analysis.cells_table import MIN_REPEATS
from analysis.errors import AnalysisError
from analysis.figures.flops_rank import MIN_SHIFT, draw_flops_rank, flops_rank_points
from analysis.figures.frontier import FrontierPanel, draw_frontier, frontier_points
from analysis.figures.latency import draw_latency, latency_points
from analysis.figures.memory import draw_memory, memory_points
from analysis.figures.theme import Spec
from analysis.report.embed import json_block
from analysis.report.evidence import Evidence
from analysis.report.html_table import HtmlTable, html_table
from analysis.tables import Table, make_table

MAX_PANELS = 12
"""Small panels of one kind; a fleet of hundreds is summarised by its tables."""
_MAX_PAIRS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One chart; `description` is what a reader who cannot see it is told."""

    id: str
    title: str
    caption: str
    description: str
    height: int
    spec_json: Markup


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part of the page; `short` is its name in the contents."""

    id: str
    short: str
    title: str
    lead: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[HtmlTable, ...] = ()
    notes: tuple[str, ...] = ()
    layout: str = ""
    is_by_family: bool = False


def figure(name: str, title: str, caption: str, description: str, spec: Spec) -> Figure:
    """A chart ready for the template."""
    return Figure(
        id=name,
        title=title,
        caption=caption,
        description=description,
        height=int(str(spec["height"])),
        # Vega names the element anew once it has drawn.
        spec_json=json_block({**spec, "description": description}),
    )


def latency_section(evidence: Evidence) -> Section:
    """Every model on every platform, on one log scale."""
    panels = latency_points(evidence.cells, evidence.processes, max_panels=MAX_PANELS)
    figures = [
        figure(
            f"latency-{number}",
            panel.label,
            "",
            f"Latency on {panel.label}: {len(panel.cells)} models "
            f"{_range_text(panel.cells, 'ms', 'ms')}.",
            draw_latency(panel),
        )
        for number, panel in enumerate(panels, start=1)
    ]
    return Section(
        id="latency",
        short="Latency",
        title="Latency of every model on every platform",
        lead=(
            "Each small mark is the median of one fresh process, the symbol the median of those. "
            + _interval_text(evidence.cells),
        ),
        figures=tuple(figures),
        tables=_tables(evidence, "latency", "coldstart"),
        notes=_left_out(evidence.cells, len(figures)),
        is_by_family=True,
    )


def _interval_text(cells: pl.DataFrame) -> str:
    counts = sorted({int(n) for n in cells["n_repeats"]})
    few = [n for n in counts if n < MIN_REPEATS]
    if not few:
        return "The bar is the interval of that median over processes."
    said = " or ".join(str(n) for n in few)
    noun = "repeat carries" if few == [1] else "repeats carry"
    text = f"{said} {noun} no interval: below {MIN_REPEATS} processes the page shows none."
    return text if few == counts else f"Bars are intervals of that median; {text}"


def memory_section(evidence: Evidence) -> Section:
    """Peaks while running and loading, with what they count."""
    panels = memory_points(evidence.cells, max_panels=MAX_PANELS)
    figures = [
        figure(
            f"memory-{number}",
            panel.label,
            f"counted as {panel.metric}",
            f"Peak memory on {panel.label}, counted as {panel.metric}: {len(panel.cells)} models "
            f"{_range_text(panel.cells, 'run_mb', 'MB')} while running.",
            draw_memory(panel),
        )
        for number, panel in enumerate(panels, start=1)
    ]
    return Section(
        id="memory",
        short="Memory",
        title="Peak memory",
        lead=(
            "The symbol is the peak while running, the ring the peak while loading, both over "
            "the baseline of a warm process. Figures of different metrics do not compare.",
        ),
        figures=tuple(figures),
        tables=_tables(evidence, "memory"),
        notes=() if figures else ("No platform reports memory.",),
        is_by_family=bool(figures),
    )


def flops_section(evidence: Evidence) -> Section:
    """Where FLOPs misjudge the measured order."""
    panels = flops_rank_points(evidence.cells, max_panels=MAX_PANELS)
    figures = [
        figure(
            f"flops-{number}",
            panel.label,
            f"{panel.n_shifted} of {panel.n} models are {MIN_SHIFT} or more places off",
            f"Rank by FLOPs against measured rank on {panel.label}: {panel.n_shifted} of "
            f"{panel.n} models differ by {MIN_SHIFT} places or more.",
            draw_flops_rank(panel),
        )
        for number, panel in enumerate(panels, start=1)
    ]
    return Section(
        id="flops",
        short="FLOPs",
        title="Do FLOPs foretell the measured order?",
        lead=(
            "Inside the band FLOPs and the clock agree. Above it a model is slower than its FLOPs "
            "say, below it faster; those are named.",
        ),
        figures=tuple(figures),
        tables=_tables(evidence, "disagreement", "shifts"),
        is_by_family=True,
    )


def frontier_section(evidence: Evidence) -> Section:
    """Which of a target's best models a source had foretold."""
    panels = frontier_points(evidence.cells, max_panels=_MAX_PAIRS)
    figures = [
        figure(
            f"frontier-{number}",
            f"{panel.source_label} \N{RIGHTWARDS ARROW} {panel.target_label}",
            _frontier_caption(panel),
            f"Accuracy against latency on {panel.target_label}. {_frontier_caption(panel)}.",
            draw_frontier(panel),
        )
        for number, panel in enumerate(panels, start=1)
    ]
    lead = (
        "The line is the target's own frontier of accuracy against latency. Hits were on the "
        "source's frontier too, misses were not, and false alarms only looked best on the source."
    )
    nothing = "No two platforms share five models with a known accuracy."
    return Section(
        id="frontier",
        short="Frontiers",
        title="Would I have chosen the same models?",
        lead=(lead if figures else nothing,),
        figures=tuple(figures),
        tables=_tables(evidence, "pareto"),
        layout="wide",
    )


def _frontier_caption(panel: FrontierPanel) -> str:
    found = panel.overlap
    return (
        f"precision {found.precision:.2f} (by chance {found.chance_precision:.2f}), "
        f"recall {found.recall:.2f} over {panel.n} models"
    )


def quality_section(evidence: Evidence) -> Section:
    """Doubts about rows, and rows that are not there."""
    return Section(
        id="quality",
        short="Doubts",
        title="Doubts, failures and what was left out",
        lead=(
            "Flags are kept with their rows and shown; a failed attempt is kept as a row with its "
            "reason, and enters no figure above.",
        ),
        tables=(
            html_table(_flags_by_platform(evidence), evidence.names, is_open=True),
            *_tables(evidence, "quality"),
            *_tables(evidence, "dropped", is_open=True),
            *_skipped(evidence.records),
        ),
    )


def _flags_by_platform(evidence: Evidence) -> Table:
    """How many models of each platform carry each flag; a flag nobody carries has no column."""
    cells, names = evidence.cells, evidence.names
    flags = sorted(cells["flags"].explode().drop_nulls().unique())
    frame = (
        cells.group_by("platform_key")
        .agg(
            pl.len().alias("models"),
            (pl.col("flags").list.len() == 0).sum().alias("without_doubt"),
            *(pl.col("flags").list.contains(flag).sum().alias(flag) for flag in flags),
        )
        .sort(pl.col("platform_key").replace_strict(list(names), range(len(names))))
    )
    return Table(title="Models under each flag, by platform", frame=frame)


def _skipped(records: Sequence[Mapping[str, object]]) -> tuple[HtmlTable, ...]:
    rows = [
        {"sweep": str(record.get("sweep_id")), "cell": str(item.get("label")),
         "reason": str(item.get("reason"))}
        for record in records
        for item in _objects(record.get("skipped"))
    ]  # fmt: skip
    if not rows:
        return ()
    table = Table(title="Cells that the plan skipped", frame=pl.DataFrame(rows))
    return (html_table(table, {}, is_open=True),)


def _objects(value: object) -> Iterable[Mapping[str, object]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _tables(evidence: Evidence, *names: str, is_open: bool = False) -> tuple[HtmlTable, ...]:
    return tuple(table_of(evidence, name, is_open=is_open) for name in names)


def table_of(evidence: Evidence, name: str, *, is_open: bool = False) -> HtmlTable:
    """One table of the analysis; where it has no answer, its reason stands in its place."""
    try:
        table = make_table(name, evidence.attempts, evidence.selection)
    except AnalysisError as error:
        table = Table(title=name.capitalize(), frame=pl.DataFrame(), notes=(str(error),))
    return html_table(table, evidence.names, is_open=is_open, said=evidence.said)


def _left_out(cells: pl.DataFrame, n_shown: int) -> tuple[str, ...]:
    n = cells["platform_key"].n_unique()
    return () if n <= n_shown else (f"{n_shown} of {n} platforms are drawn; the table has all.",)


def _range_text(points: Sequence[Mapping[str, object]], name: str, unit: str) -> str:
    values = [float(str(point[name])) for point in points if point[name] is not None]
    return f"from {min(values):g} to {max(values):g} {unit}" if values else "without a value"
