"""The sections of the page below the answer.

`sections.toml` has their texts and tables. A function here says what depends on the data: whether
a section is on the page, whether it has charts, and further tables and notes.
"""

import math
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import polars as pl

from fleetrank.analysis.chart_points import MAX_PROCESSES
from fleetrank.analysis.labels import short_commits
from fleetrank.analysis.report.evidence import Evidence
from fleetrank.analysis.report.growth_points import drawn_curves, drawn_runs, sustained_series
from fleetrank.analysis.report.html_table import HtmlCell, HtmlHead, HtmlRow, HtmlTable, html_table
from fleetrank.analysis.report.page_data import flops_ranks
from fleetrank.analysis.report.page_tables import PREDICTED_LEAD, PageTables
from fleetrank.analysis.report.pair_view import is_of_pairs
from fleetrank.analysis.report.shown import Shown
from fleetrank.analysis.report.token_points import shown_token_cells
from fleetrank.analysis.statistics.measured.latency_tables import MARKS
from fleetrank.analysis.statistics.measured.verdicts import sweep_sentences
from fleetrank.analysis.statistics.ranks.disagreement import MIN_SHIFT
from fleetrank.analysis.statistics.scaling.curves import KNEE_GAIN
from fleetrank.analysis.statistics.scaling.sustained import sustained_as_table
from fleetrank.analysis.statistics.transfer.transfer import transfer_as_table
from fleetrank.analysis.stored.cell_values import MIN_REPEATS, NOISY_SHARE
from fleetrank.analysis.stored.latency_statistic import STATISTIC
from fleetrank.analysis.stored.sweep_record import SweepRecord
from fleetrank.analysis.stored.sweep_tags import SweepTags
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.values import value_text
from fleetrank.foundation.vocabulary import CellVerdict
from fleetrank.foundation.wording import count_of

_FEW_ROWS = 12
"""More cells to measure again are folded."""
_SMALL_MATRIX = 12
"""Up to this many platforms two matrices are drawn side by side."""
_STEPS = 5
"""Shades in `page.css`, from the fastest to the slowest value in equal steps of the logarithm."""
_PER_MS = 1e6
_DEVICE_FACTS = (
    "device", "device_model", "tier", "origin", "cpu_model", "logical_cores", "memory_bytes",
    "os", "arch", "is_virtual_machine", "governor", "host",
)  # fmt: skip
_PLATFORM_FACTS = (
    "platform_key", "backend", "mode", "precision", "batch", "threads", "cpu_choice", "affinity",
    "runtime_version", "python_version", STATISTIC,
)  # fmt: skip
_MODEL_FACTS = (
    "model", "family", "flops", "flops_method", "parameters", "input_size", "accuracy_top1",
    "accuracy_source", "weights_id",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part of the page; the texts are explained in `sections.toml`.

    Attributes:
        charts: kind of its charts; empty without charts.
        drawn: what it shows beside the cells of the page, with `device` and `origin`.
    """

    id: str
    title: str
    lead: tuple[str, ...] = ()
    charts: str = ""
    layout: str = ""
    overall: str = ""
    tables: tuple[HtmlTable, ...] = ()
    notes: tuple[str, ...] = ()
    is_by_family: bool = False
    is_first: bool = False
    drawn: pl.DataFrame | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Own:
    """What a section has because of the data.

    Attributes:
        before, after: tables around those that the text names.
        values: of the names in the lead; an empty paragraph is left out.
        names: of its tables, in place of those of the text.
        layout: in place of that of the text.
    """

    has_charts: bool = True
    before: tuple[HtmlTable, ...] = ()
    after: tuple[HtmlTable, ...] = ()
    notes: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    names: tuple[str, ...] | None = None
    layout: str | None = None
    drawn: pl.DataFrame | None = None


_Make = Callable[[Evidence, PageTables], _Own | None]


def page_sections(
    evidence: Evidence, tables: PageTables, *, has_turns: bool = False
) -> list[Section]:
    """The sections of a page.

    Args:
        evidence: rows and values of the page.
        tables: its tables.
        has_turns: there are ranks with and without the effects of the host to compare.
    """
    found = []
    for name, text in _texts().items():
        own = _OWN[name](evidence, tables) if name in _OWN else _Own()
        if own is not None and (name != "turns" or has_turns):
            found.append(_section(name, text, own, evidence, tables))
    return found


def _section(
    name: str, text: Mapping[str, Any], own: _Own, evidence: Evidence, tables: PageTables
) -> Section:
    paragraphs = (one.strip() for one in text["lead"].format_map(own.values).split("\n\n"))
    asked = text.get("tables", ()) if own.names is None else own.names
    named = listed(
        evidence,
        tables,
        *(one for one in asked if one in tables.made),
        is_open=text.get("is_open", False),
        is_statistic=text.get("is_statistic", False),
    )
    return Section(
        id=name,
        title=text["title"],
        lead=tuple(filter(None, paragraphs)),
        charts=text.get("charts", "") if own.has_charts else "",
        layout=text.get("layout", "") if own.layout is None else own.layout,
        overall=text.get("overall", ""),
        tables=(*own.before, *named, *own.after),
        notes=own.notes,
        is_by_family=own.has_charts and text.get("is_by_family", False),
        is_first=text.get("is_first", False),
        drawn=own.drawn,
    )


@cache
def _texts() -> Mapping[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


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


def _transfer(evidence: Evidence, tables: PageTables) -> _Own | None:
    if tables.transfer is None or not tables.transfer.pairs:
        return None
    return _Own(
        before=tuple(_pair_tables(evidence, tables)),
        notes=(*evidence.limits,),
        layout="wide" if len(evidence.shown.platforms) <= _SMALL_MATRIX else "full",
    )


def _pair_tables(evidence: Evidence, tables: PageTables) -> Iterator[HtmlTable]:
    """Groups, and the pairs of which both platforms are listed."""
    keys = frozenset(evidence.paired_keys)
    for name, found in (
        ("transfer", tables.transfer),
        ("transfer along=runtime", tables.frameworks),
    ):
        if found is not None:
            pairs = [one for one in found.pairs if {one.source, one.target} <= keys]
            table = transfer_as_table(replace(found, pairs=tuple(pairs)))
            yield html_table(name, table, evidence.shown, is_statistic=True, said=evidence.said)


def frontier_part(_evidence: Evidence, tables: PageTables) -> _Own | None:
    """Only if the frontiers of some pair are known."""
    found = tables.pareto
    has_any = found is not None and bool(np.isfinite(found.figures["precision"]).any())
    return _Own() if has_any else None


def _flops(evidence: Evidence, _tables: PageTables) -> _Own | None:
    has_any = not flops_ranks(evidence.ranked).is_empty()
    return _Own(values={"min_shift": f"{MIN_SHIFT:g}"}) if has_any else None


def claims_part(evidence: Evidence, tables: PageTables) -> _Own | None:
    """Only if the figure of some claim has an interval here: the others tell of no claim."""
    has_any = tables.answered("claims") and tables["claims"].frame["low"].count() > 0
    return _Own(notes=evidence.limits) if has_any else None


def _latency(evidence: Evidence, tables: PageTables) -> _Own:
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
    predicted = "" if tables.predictions is None else PREDICTED_LEAD
    values = {"interval": _interval_text(evidence.cells), "predicted": predicted}
    return _Own(notes=tuple(notes), values=values)


def _interval_text(cells: pl.DataFrame) -> str:
    counts = sorted({int(n) for n in cells["n_repeats"]})
    few = [n for n in counts if n < MIN_REPEATS]
    if not few:
        return "Its interval over processes is shown on hover and in the table."
    said = " or ".join(str(n) for n in few)
    noun = "repeat carries" if few == [1] else "repeats carry"
    text = f"{said} {noun} no interval: the page shows one from {MIN_REPEATS} processes on."
    return text if few == counts else f"Its interval is shown on hover; {text}"


def memory_part(evidence: Evidence, _tables: PageTables) -> _Own | None:
    """Only if some platform reports memory."""
    return _Own() if (evidence.shown.cells["peak_memory_bytes"] > 0).any() else None


def _trust(evidence: Evidence, tables: PageTables) -> _Own:
    """The cells to measure again, the worst first, and one sentence for each sweep."""
    cells = tables.verdicts.sort("verdict", "process_gap", descending=[False, True])
    again = cells.filter(pl.col("verdict").is_in([CellVerdict.NOISY, CellVerdict.DOUBTFUL]))
    n_steady, n_bare = (
        cells.filter(is_such).height
        for is_such in (pl.col("verdict") == CellVerdict.STEADY, pl.col("verdict").is_null())
    )
    texts = (
        (n_steady, "cell is", "cells are", "steady: two processes differ by at most "
         f"{100 * NOISY_SHARE:.0f} % on average."),
        (n_bare, "cell has", "cells have", "one value each, and no verdict."),
    )  # fmt: skip
    counts = [f"{count_of(n, one, many)} {text}" for n, one, many, text in texts if n]
    said = [*(one.replace("`", "") for one in sweep_sentences(cells)), " ".join(counts)]
    percent = (100 * pl.col("process_gap")).alias("two_processes_percent")
    columns = ("model", "platform_key", "verdict", "why", percent, "n_repeats")
    table = Table(title="Cells to measure again", frame=again.select(columns))
    return _Own(
        values={"said": "\n\n".join(said)},
        before=(html_table("again", table, evidence.shown, is_open=again.height <= _FEW_ROWS),)
        if again.height
        else (),
    )


def _dropped(evidence: Evidence, _tables: PageTables) -> _Own:
    skipped = [
        {"sweep": record.sweep_id, "cell": item.label, "reason": item.reason}
        for record in evidence.records
        for item in record.skipped
    ]
    table = Table(title="Cells that the plan skipped", frame=pl.DataFrame(skipped))
    return _Own(
        notes=(*evidence.shown.notes, *evidence.limits),
        after=(html_table("skipped", table, evidence.shown, is_open=True),) if skipped else (),
    )


def phases_part(evidence: Evidence, _tables: PageTables) -> _Own | None:
    """Only with tokens."""
    # The means of phases use every platform with two workloads.
    return _Own(drawn=evidence.token_cells) if evidence.token_workloads else None


def _tokens(evidence: Evidence, _tables: PageTables) -> _Own | None:
    return _Own(drawn=shown_token_cells(evidence)) if evidence.token_workloads else None


def _reading(evidence: Evidence, tables: PageTables) -> _Own | None:
    """Only with segments, whose times and crossovers have an answer."""
    if not evidence.has_segments or len(tables.answered("tokens/reading", "tokens/crossover")) < 2:
        return None
    times = evidence.shown.on_page(tables["tokens/reading"].frame)
    if times.is_empty():
        return None
    return _Own(
        names=tables.answered(*_texts()["reading"]["tables"]),
        drawn=evidence.origins.join(times, on="platform_key", how="semi"),
    )


def components_part(_evidence: Evidence, tables: PageTables) -> _Own | None:
    """Only if some of the cells were profiled."""
    names = tables.answered(*_texts()["components"]["tables"])
    return _Own(names=names) if names else None


def scaling_part(evidence: Evidence, tables: PageTables) -> _Own | None:
    """Only with two values of an axis."""
    points = drawn_curves(evidence, tables)
    return None if points is None else _Own(drawn=points, values={"knee": f"{KNEE_GAIN:g}"})


def _sustained(evidence: Evidence, _tables: PageTables) -> _Own | None:
    rows = drawn_runs(evidence)
    if rows is None:
        return None
    table = sustained_as_table(rows)
    return _Own(
        has_charts=bool(sustained_series(evidence)),
        after=(html_table("scaling/sustained", table, evidence.shown, is_statistic=True),),
        drawn=rows,
    )


def _hint(row: Mapping[str, Any]) -> str:
    """The interval of a figure, its processes, and what speaks against it."""
    low, high = row["latency_low_ns"], row["latency_high_ns"]
    interval = "no interval"
    if low is not None and high is not None:
        interval = f"{value_text(low / _PER_MS)} to {value_text(high / _PER_MS)} ms"
    processes = count_of(row["n_repeats"], "process", "processes")
    return ", ".join(filter(None, (interval, processes, row["why"])))


def latency_matrix(shown: Shown, verdicts: pl.DataFrame) -> HtmlTable:
    """Models as rows, platforms as columns, ms; the order is that of the page.

    A figure that is not steady has a mark, and on hover its interval and what speaks against it.

    It has at most `shown.MAX_CELLS` measured values, whatever the number of stored rows.
    """
    of_cell = {
        (str(model), str(key)): value / _PER_MS
        for model, key, value in shown.cells.select(
            "model", "platform_key", "latency_ns"
        ).iter_rows()
        if value is not None and value > 0
    }
    notes = {
        (str(row["model"]), str(row["platform_key"])): (MARKS.get(row["verdict"], ""), _hint(row))
        for row in verdicts.iter_rows(named=True)
    }
    low, high = min(of_cell.values(), default=1.0), max(of_cell.values(), default=1.0)
    families = dict(shown.cells.select("model", "family").iter_rows())

    def shade(value: float | None) -> int | None:
        """From 0, the fastest, to `_STEPS` - 1; `None` without a value."""
        if value is None or high <= low:
            return None if value is None else 0
        return min(int(_STEPS * math.log(value / low) / math.log(high / low)), _STEPS - 1)

    def row(model: str) -> HtmlRow:
        places = [(model, key) for key in shown.platforms]
        cells = (
            HtmlCell(
                text=value_text(of_cell.get(place), is_grouped=True)
                + notes.get(place, ("", None))[0],
                hint=notes.get(place, ("", None))[1],
                shade=shade(of_cell.get(place)),
            )
            for place in places
        )
        family = families[model]
        about = {"model": model} | ({} if family is None else {"family": family})
        return HtmlRow(cells=(HtmlCell(text=model), *cells), about=about)

    return HtmlTable(
        id="matrix",
        caption="Latency, ms: models by platforms",
        heads=(
            HtmlHead(text="model", is_number=False),
            *(
                HtmlHead(text=label, is_number=True, platform=str(number))
                for number, label in enumerate(shown.platforms.values())
            ),
        ),
        rows=tuple(map(row, shown.models)),
        is_open=True,
        is_matrix=True,
        count=count_of(len(shown.models), "row"),
    )


def _provenance(evidence: Evidence, _tables: PageTables) -> _Own:
    """Sweeps with their commands, commits and seeds; devices; platforms with their versions."""
    models = evidence.cells.select(_MODEL_FACTS).unique(maintain_order=True)
    versions = [
        {"sweep": record.sweep_id, "library": name, "version": version}
        for record in evidence.records
        for name, version in record.versions.items()
    ]
    facts = (
        ("sweeps", "Sweeps", _sweeps(evidence)),
        ("devices", "Devices", _facts(evidence, "device", _DEVICE_FACTS)),
        ("platforms", "Platforms", _facts(evidence, "platform_key", _PLATFORM_FACTS)),
        ("models", "Models", models.sort("family", "model")),
        ("versions", "Versions of the libraries", pl.DataFrame(versions)),
    )
    return _Own(
        after=tuple(
            html_table(name, Table(title=title, frame=frame), evidence.shown, is_open=number < 2)
            for number, (name, title, frame) in enumerate(facts)
            if not frame.is_empty()
        ),
    )


def _sweeps(evidence: Evidence) -> pl.DataFrame:
    """Facts from the rows, and facts from the sweep's record if it exists."""
    used = pl.Series(list(dict.fromkeys(evidence.cells["sweep_id"])))
    spans = (
        evidence.selected.filter(pl.col("sweep_id").is_in(used.to_list()))
        .group_by("sweep_id")
        .agg(
            pl.col("started_utc").min().alias("started"),
            pl.col("finished_utc").max().alias("finished"),
            pl.len().alias("attempts"),
            *(_several(name) for name in ("seed", "fleetrank_version", "git_commit", "origin")),
        )
        .sort("started", descending=True, nulls_last=True)
        .collect()
    )
    by_id = {record.sweep_id: record for record in evidence.records}
    known = [by_id.get(sweep, SweepRecord(sweep_id=sweep)) for sweep in spans["sweep_id"]]
    extra: list[dict[str, object]] = [
        {"command_line": one.command_line, "state": one.state} for one in known
    ]
    short = short_commits(pl.col("git_commit"))
    columns = {"command_line": pl.String(), "state": pl.String()}
    if any(one != SweepTags() for one in evidence.tags.values()):
        columns |= {"tags": pl.String(), "note": pl.String()}
        for row, record in zip(extra, known, strict=True):
            given = evidence.tags.get(record.sweep_id, SweepTags())
            row |= {"tags": ", ".join(given.tags) or None, "note": given.note}
    return spans.with_columns(short).hstack(pl.DataFrame(extra, schema=columns))


def _facts(evidence: Evidence, key: str, names: tuple[str, ...]) -> pl.DataFrame:
    """One row per key that has a cell; a fact that changed lists all its values."""
    shown = evidence.cells[key].unique().to_list()
    facts = (
        evidence.selected.filter((pl.col("status") == "ok") & pl.col(key).is_in(shown))
        .group_by(key)
        .agg(*(_several(name) for name in names if name != key))
        .collect()
    )
    return facts.select(names).sort(key)


def _several(name: str) -> pl.Expr:
    values = pl.col(name).drop_nulls().unique().sort().cast(pl.String)
    return pl.when(values.len() > 0).then(values.str.join(" | ")).alias(name)


_OWN: Mapping[str, _Make] = MappingProxyType(
    {
        "transfer": _transfer,
        "swaps": lambda _, tables: _Own() if is_of_pairs(tables.fleet) else None,
        "frontier": frontier_part,
        "flops": _flops,
        "claims": claims_part,
        "matrix": lambda evidence, tables: _Own(
            after=(latency_matrix(evidence.shown, tables.verdicts),)
        ),
        "latency": _latency,
        "memory": memory_part,
        "trust": _trust,
        "dropped": _dropped,
        "history": lambda _, tables: _Own() if tables.history else None,
        # Only with rounds.
        "host": lambda evidence, _: _Own() if evidence.rounds else None,
        # Only if a repeat waited.
        "waits": lambda _, tables: (
            _Own() if tables["trust/waits"].frame["n_waited"].sum() else None
        ),
        # Only if a device was measured or is registered here; published rows are of no device here.
        "lab": lambda _, tables: _Own() if tables["trust/devices"].frame.height else None,
        "phases": phases_part,
        "rates": _tokens,
        "contexts": _tokens,
        "reading": _reading,
        "components": components_part,
        "scaling": scaling_part,
        "sustained": _sustained,
        "provenance": _provenance,
    }
)
"""A section to what it has because of the data; a section that is not here has its text only."""
