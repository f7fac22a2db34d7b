"""All tables of the page. Each is computed once; its charts and sections use them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import polars as pl

from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.figures import (
    chosen_platforms,
    models_by_latency,
    platform_labels,
    process_medians,
    sample_quantiles,
    sampled_processes,
)
from fleetrank.analysis.labels import Labels
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.report.pair_view import fleet_data
from fleetrank.analysis.rounds import MeasuredRound, round_values
from fleetrank.analysis.statistics.frontier_transfer import ParetoResult, pareto
from fleetrank.analysis.statistics.language import PhasesResult, phases, phases_table
from fleetrank.analysis.statistics.latency_tables import own_first
from fleetrank.analysis.statistics.predictions import (
    Prediction,
    PredictionsResult,
    predict,
    predictions_as_table,
)
from fleetrank.analysis.statistics.scaling import scaling_points, sustained_rows
from fleetrank.analysis.statistics.transfer import TransferResult, transfer, transfer_as_table
from fleetrank.analysis.statistics.verdicts import with_verdicts
from fleetrank.analysis.stored.cell_values import cell_values
from fleetrank.analysis.stored.columns import (
    DEFAULT_ORIGINS,
    FAMILIES,
    ORIGINS,
    PRECISIONS,
    ROW_KEY,
    STORED_RUNTIMES,
    TIERS,
)
from fleetrank.analysis.stored.load import IS_SUSTAINED, load_measurements, valid_attempts
from fleetrank.analysis.stored.scope import (
    Scope,
    of_every_workload,
    of_precisions,
    select_attempts,
    select_cells,
    with_whole_names,
)
from fleetrank.analysis.stored.selection import Selection, refuse_absent_workload, workloads_of
from fleetrank.analysis.stored.side_tables import COMPONENT_TIMES, read_side
from fleetrank.analysis.stored.sweep_record import SweepRecord, SweepTags, read_record, shown_tags
from fleetrank.analysis.tables.formats import column_texts, grid_of_rows, heading
from fleetrank.analysis.tables.table import Table, meaning_of_column, split_notes
from fleetrank.analysis.tables.tables import TABLES, TableRequest, session_table
from fleetrank.foundation.errors import count_of
from fleetrank.foundation.inputs import IMAGE, Workload, WorkloadKind
from fleetrank.foundation.lease import pause_between_steps
from fleetrank.foundation.vocabulary import Axis, Origin

# What is on the page: its models and platforms if there are too many, and how it names them.

MAX_MODELS = 40
"""A panel with more rows is not readable; only own models can be more."""
MAX_CELLS = 4500
"""Values (model on platform) on the page; they take about 2 MB."""
SUBJECTS = ("platform", "model", "device", "tier", "runtime", "precision", "family")
"""What a row can be about: the names of its `data-` attributes, which `state.js` reads."""
_WORDS = {
    "tier": TIERS, "runtime": STORED_RUNTIMES, "precision": PRECISIONS, "family": FAMILIES,
}  # fmt: skip
_SIDES = ("source", "target")
UNREAL = tuple(origin for origin in ORIGINS if origin not in DEFAULT_ORIGINS)
"""Origins that are not real devices."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """The contents of the page; all tables and charts use these numbers of platforms and models.

    The class has no slots, because `cached_property` needs a `__dict__`.

    Attributes:
        platforms: key to short name, in the order to show.
        names: key to short name of every platform in the results.
        models: from the fastest to the slowest.
        cells: rows of `cell_values.cell_values` of these models and platforms.
        notes: which data is not shown, and where to see it.
        left_out: what the page leaves out because there is too much, by the name of a column. A
            model that was not measured in the page's workload is not left out: sections on other
            workloads show it.
    """

    platforms: Mapping[str, str]
    names: Mapping[str, str]
    models: tuple[str, ...]
    cells: pl.DataFrame
    notes: tuple[str, ...]
    left_out: Mapping[str, frozenset[str]]

    @cached_property
    def platform_at(self) -> dict[str, int]:
        """Number of each platform."""
        return {key: number for number, key in enumerate(self.platforms)}

    @cached_property
    def model_at(self) -> dict[str, int]:
        """Number of each model."""
        return {name: number for number, name in enumerate(self.models)}

    def on_page(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows that are not about a model, platform or device that the page leaves out."""
        known = [name for name in self.left_out if name in rows.columns]
        is_out = [pl.col(name).is_in(list(self.left_out[name])) for name in known]
        return rows.filter(~pl.any_horizontal(is_out).fill_null(value=False)) if is_out else rows

    def subjects(self, row: Mapping[str, object]) -> Mapping[str, str] | None:
        """What a table's row is about, by kind; a filter hides it when one of these is hidden.

        A platform is its number on the page, anything else its name. Two platforms, tiers or
        runtimes (source and target) are separated by a space.

        Returns:
            `None` if the row is about a model, platform or device that the page leaves out.
        """
        texts = {name: str(value) for name, value in row.items() if value is not None}
        if self._is_left_out(texts):
            return None
        found: dict[str, list[str]] = {}
        if (key := texts.get("platform_key")) in self.platform_at:
            found["platform"] = [str(self.platform_at[str(key)])]
        for side in _SIDES:
            kind, word = self._side(texts.get(side, ""))
            if kind and word not in found.setdefault(kind, []):
                found[kind].append(word)
        for name in ("model", "device", *_WORDS):
            text = texts.get(name)
            if text in _WORDS.get(name, (text,)) and text not in found.get(name, (None,)):
                found.setdefault(name, []).append(str(text))
        return {kind: " ".join(found[kind]) for kind in SUBJECTS if kind in found}

    def _is_left_out(self, texts: Mapping[str, str]) -> bool:
        platforms = self.left_out.get("platform_key", frozenset())
        return any(texts.get(name) in out for name, out in self.left_out.items()) or any(
            texts.get(side) in platforms for side in _SIDES
        )

    def _side(self, text: str) -> tuple[str, str]:
        """Kind and name of a source or target; the kind of any other text is empty."""
        if text in self.platform_at:
            return "platform", str(self.platform_at[text])
        kinds = (kind for kind in ("tier", "runtime") if text in _WORDS[kind])
        return next(kinds, ""), text


def choose_shown(cells: pl.DataFrame) -> Shown:
    """All, or the user's own models and platforms first, then imported ones up to the limits.

    Imported models follow that share a device with the own ones, those on most platforms first;
    every own model is shown. Of imported platforms each tier has an equal share.
    """
    names = platform_labels(cells).names
    is_own = pl.col("origin") != Origin.IMPORTED
    n_own = cells.filter(is_own)["model"].n_unique()
    ordered = own_first(cells, "model")
    models = set(ordered[: max(MAX_MODELS, n_own)])
    of_models = cells.filter(pl.col("model").is_in(list(models)))
    room = max(MAX_CELLS // len(models), 1)
    mine = chosen_platforms(of_models.filter(is_own), room)
    others = chosen_platforms(of_models.filter(~is_own), room - len(mine))
    platforms = [key for key in names if key in mine or key in others]
    shown = of_models.filter(pl.col("platform_key").is_in(list(platforms)))
    speed = {name: number for number, name in enumerate(models_by_latency(shown))}
    kept = {"platform_key": set(platforms), "model": models, "device": set(shown["device"])}
    return Shown(
        # The name still distinguishes it from every other platform in the results.
        platforms={key: names[key] for key in platforms},
        names=names,
        models=tuple(sorted(models, key=lambda name: (speed.get(name, len(models)), name))),
        cells=shown,
        notes=tuple(_left_out(len(models), len(ordered), len(platforms), len(names))),
        left_out={name: frozenset(set(cells[name]) - some) for name, some in kept.items()},
    )


def _left_out(n_models: int, of_models: int, n_platforms: int, of_platforms: int) -> list[str]:
    notes = []
    if n_models < of_models:
        notes.append(
            f"This page shows {n_models:,} of {of_models:,} models: your own, then those published "
            "for the most platforms. Ranks, correlations and frontiers use all; the table "
            "`latency` with `model=NAME` lists the others."
        )
    if n_platforms < of_platforms:
        notes.append(
            f"This page shows {n_platforms:,} of {of_platforms:,} platforms: your own, then an "
            "equal share of each tier; `fleetrank report show latency` prints all."
        )
    return notes


def unreal_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of simulated or virtual devices; `origin` may list several origins."""
    return rows.filter(pl.col("origin").str.contains("|".join(UNREAL)))


def kinds_of(origins: Iterable[str | None]) -> str:
    """Which origins that are not real devices occur, as words; empty without any."""
    known = {part for one in origins if one for part in one.split(" | ")}
    return " and ".join(kind for kind in UNREAL if kind in known)


def titled(name: str, origins: Iterable[str | None]) -> str:
    """The name of a device or platform, and after it what it is if it is not a real device."""
    kinds = kinds_of(origins)
    return f"{name} ({kinds})" if kinds else name


# All data of the page, read once.

_SAMPLES = ("samples_ns", "device_samples_ns")
"""Samples are most of the bytes. Tables need only the stored summaries, strips some samples."""
_MAX_COMPARED = 60
"""Their 1,770 pairs are compared. With intervals and nulls this takes about 2 s, also for a
thousand models. At least 51, because from there on `draws.draws_for` makes fewer draws."""
_MAX_AVERAGED = 1000
"""Their means from tier to tier are the answer at the top, equal to the table's. Without intervals
of single pairs this takes 2 s for 318 platforms and 7 s for a thousand."""
_MAX_PAIRED = 40
"""The 1,560 directed pairs of these platforms are listed and drawn, with their frontiers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Rows and values of one page.

    Attributes:
        attempts: every stored attempt of any origin, without its samples; in memory, because every
            table scans it again.
        averaged_keys, compared_keys, paired_keys: the platforms used for means from tier to tier,
            compared pair by pair, and listed as pairs; each is a part of the one before.
        selected: the attempts that the page covers.
        scope: the selected cells and their notes, which are about the whole page and are not
            repeated under each table.
        ranked: the cells with the latency that ranks them; see `Session.comparable`.
        rounds: of the selected sweeps and devices.
        processes: as `figures.process_medians` gives them.
        quantiles: as `figures.sample_quantiles` gives them, of the cells shown.
        shown: what is on the page.
        limits: notes on platforms that are not compared, and where to see them.
        records: of the sweeps in `attempts`, newest first; only its id where one cannot be read.
        tags: of the same sweeps, by id.
        selection: of the page, with its workload.
        workloads: of all selected rows; the page is about one of them.
        token_cells: cells of every workload with tokens; `None` on a page about images.
        sustained: repeats of sustained runs of all workloads, with samples; `None` without any.
        results: the results folder.
        origins: platform, device and origin of the selected rows of every workload, each once.
        has_profiles: some of the cells were profiled.
    """

    attempts: pl.LazyFrame
    averaged_keys: tuple[str, ...]
    compared_keys: tuple[str, ...]
    paired_keys: tuple[str, ...]
    selected: pl.LazyFrame
    scope: Scope
    ranked: pl.DataFrame
    rounds: tuple[MeasuredRound, ...]
    processes: pl.DataFrame
    quantiles: pl.DataFrame
    shown: Shown
    limits: tuple[str, ...]
    records: tuple[SweepRecord, ...]
    tags: Mapping[str, SweepTags]
    selection: Selection
    workloads: tuple[str, ...] = (str(IMAGE),)
    token_cells: pl.DataFrame | None = None
    sustained: pl.DataFrame | None = None
    results: Path | None = None
    origins: pl.DataFrame = field(default_factory=pl.DataFrame)
    has_profiles: bool = False

    @property
    def workload(self) -> str:
        """The workload that the page is about."""
        return str(self.selection.workload)

    @property
    def token_workloads(self) -> tuple[str, ...]:
        """The workloads of `token_cells`."""
        if self.token_cells is None:
            return ()
        have = set(self.token_cells["workload"])
        return tuple(one for one in self.workloads if one in have)

    @property
    def has_segments(self) -> bool:
        """Whether some of the workloads of `token_cells` read a segment of a longer text."""
        kinds = {Workload.parse(one).kind for one in self.token_workloads}
        return WorkloadKind.SEGMENT in kinds

    @property
    def cells(self) -> pl.DataFrame:
        """The selected cells, as `cell_values.cell_values` gives them."""
        return self.scope.cells

    @property
    def said(self) -> tuple[str, ...]:
        """Notes about the whole page."""
        return self.scope.notes

    def session(self) -> Session:
        """A session of all platforms; its arrays are kept as long as the caller keeps it."""
        return Session(self.attempts, self.selection, cells=self.scope, results=self.results)


def gather(results: Path, selection: Selection) -> Evidence:
    """Reads only the data that the page needs.

    Raises:
        NoDataError: there are no measurements, or no successful ones, or no row has the workload.
    """
    stored = load_measurements(results, sweep=selection.sweep, origins=ORIGINS)
    scan = of_precisions(stored, selection, results)
    blank = (pl.lit(None, dtype=pl.List(pl.Int64)).alias(name) for name in _SAMPLES)
    attempts = scan.with_columns(blank).collect().lazy()
    refuse_absent_workload(attempts, selection.workload)
    selection = with_whole_names(attempts, selection)
    rows = of_every_workload(attempts, selection)
    workloads = workloads_of(rows)
    selection = _of_page(selection, workloads)
    scope = select_cells(attempts, selection)
    selected = select_attempts(attempts, selection)
    shown = choose_shown(scope.cells)
    of_shown = (
        valid_attempts(selected)
        .filter(
            pl.col("model").is_in(list(shown.models))
            & pl.col("platform_key").is_in(list(shown.platforms))
        )
        .select(*ROW_KEY, "model", "platform_key", "latency_p50_ns", "sample_count")
        .collect()
        .lazy()
    )
    averaged, compared, paired = _chosen(scope.cells)
    values = round_values(attempts, selected)
    started = scope.cells.group_by("sweep_id").agg(pl.col("started_utc").min())
    newest_first = started.sort("started_utc", descending=True, nulls_last=True)["sweep_id"]
    records = tuple(read_record(results / "sweeps" / f"{sweep}.json") for sweep in newest_first)
    profiled = read_side(results, COMPONENT_TIMES).select("cell_key").unique()
    return Evidence(
        attempts=attempts,
        averaged_keys=averaged,
        compared_keys=compared,
        paired_keys=paired,
        selected=selected,
        scope=scope,
        ranked=values.of_cells(scope).cells,
        rounds=values.rounds,
        processes=process_medians(of_shown),
        quantiles=sample_quantiles(scan, sampled_processes(of_shown)),
        shown=shown,
        limits=tuple(_limits(len(averaged), len(compared), len(paired), len(shown.names))),
        records=records,
        tags={one.sweep_id: shown_tags(results, one.sweep_id) for one in records},
        selection=selection,
        workloads=workloads,
        token_cells=_token_cells(attempts, selection, workloads),
        sustained=_sustained(scan, selection),
        results=results,
        origins=rows.select("platform_key", "device", "origin").unique().collect(),
        has_profiles=not profiled.join(scope.cells, on="cell_key", how="semi").is_empty(),
    )


def _sustained(scan: pl.LazyFrame, selection: Selection) -> pl.DataFrame | None:
    every = Session(scan.filter(IS_SUSTAINED), replace(selection, workload=None))
    try:
        return sustained_rows(every)
    except NoDataError:
        return None


def _of_page(selection: Selection, workloads: Sequence[str]) -> Selection:
    """With the workload of the page: of several without images the first one."""
    if selection.workload is not None:
        return selection
    is_of_images = str(IMAGE) in workloads or not workloads
    return replace(selection, workload=str(IMAGE) if is_of_images else workloads[0])


def _token_cells(
    attempts: pl.LazyFrame, selection: Selection, workloads: Sequence[str]
) -> pl.DataFrame | None:
    if selection.workload == str(IMAGE):
        return None
    found = []
    for workload in workloads:
        if workload != str(IMAGE):
            chosen = replace(selection, workload=workload)
            found.append(cell_values(select_attempts(attempts, chosen)))
    return pl.concat(found)


def _chosen(cells: pl.DataFrame) -> list[tuple[str, ...]]:
    """Platforms for averages, for comparison and for listed pairs: equal shares of each tier."""
    found = []
    for most in (_MAX_AVERAGED, _MAX_COMPARED, _MAX_PAIRED):
        keys = tuple(chosen_platforms(cells, most))
        cells = cells.filter(pl.col("platform_key").is_in(list(keys)))
        found.append(keys)
    return found


def _limits(n_averaged: int, n_compared: int, n_paired: int, n: int) -> list[str]:
    notes = []
    if n_averaged < n:
        notes.append(
            f"Means from tier to tier use {n_averaged:,} of {n:,} platforms, an equal share of "
            "each tier; `fleetrank report show transfer` uses all."
        )
    if n_compared < n_averaged:
        notes.append(
            f"Pairs are compared for {n_compared} of {n:,} platforms, an equal share of each "
            "tier; means from tier to tier use all."
        )
    if n_paired < n_compared:
        notes.append(f"Pairs are listed and frontiers are drawn for {n_paired} of those platforms.")
    return notes


# Tables of the analysis as HTML cells: rounded figures and short names of platforms.

MAX_STATIC_ROWS = 40
"""Rows written as HTML; in a longer table the page's script writes the others."""
MAX_ROWS = 8000
"""The page shows no more rows; `report show` prints all."""
Json = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class HtmlHead:
    """A column's heading.

    Attributes:
        hint: the meaning of its word, if the glossary has it.
        platform: number of the platform that the column is about; a filter hides the column.
    """

    text: str
    is_number: bool
    hint: str | None = None
    platform: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HtmlCell:
    """A cell; `hint` is shown on hover, `shade` is a number of the style sheet's shades."""

    text: str
    is_number: bool = False
    hint: str | None = None
    shade: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HtmlRow:
    """A row; `about` is the result of `Shown.subjects`."""

    cells: tuple[HtmlCell, ...]
    about: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class HtmlTable:
    """The text of a table; the template escapes it.

    Attributes:
        id: key of the table's rows in the page's data.
        rows: the first of them, at most `MAX_STATIC_ROWS`.
        packed: all rows for the page's script, if there are more; see `_packed`.
        is_statistic: its figures use all models, platforms or both; a filter does not change them.
        is_matrix: every column but the first is about a platform and holds numbers.
    """

    id: str
    caption: str
    heads: tuple[HtmlHead, ...]
    rows: tuple[HtmlRow, ...]
    packed: Json | None = None
    notes: tuple[str, ...] = ()
    explanation: tuple[str, ...] = ()
    is_open: bool = False
    is_statistic: bool = False
    is_matrix: bool = False
    count: str = ""


def table_request(name: str) -> TableRequest:
    """The request of a name on the page, such as `trust/dropped` or `transfer along=runtime`."""
    table, *settings = name.split()
    pairs = (one.partition("=") for one in settings)
    return TableRequest(name=table, settings=tuple((key, word) for key, _, word in pairs))


def html_table(
    name: str,
    table: Table,
    shown: Shown,
    *,
    is_open: bool = False,
    is_statistic: bool = False,
    said: Iterable[str] = (),
) -> HtmlTable:
    """Turns a table into cells; a platform has its short name, with its key as the hint.

    Args:
        name: its name and settings; its id on the page is made of them.
        table: a result of `analysis.tables.tables.make_table`.
        shown: rows about other models or platforms are left out, with a note.
        is_open: whether the table is open at first.
        is_statistic: see `HtmlTable`.
        said: notes that are already elsewhere on the page.
    """
    request, frame = table_request(name), table.for_people(Labels({})).frame
    if frame.height:
        # Without hashes and empty columns; `report show` prints all columns.
        empty = [one.name for one in frame.iter_columns() if one.null_count() == len(one)]
        frame = frame.drop([*empty, "cell_key"], strict=False)
    already = set(said)
    brief, others = split_notes([note for note in table.notes if note not in already])
    notes = [*brief]
    subjects = [shown.subjects(row) for row in frame.iter_rows(named=True)]
    kept = [number for number, about in enumerate(subjects) if about is not None][:MAX_ROWS]
    if len(kept) < frame.height:
        is_known = request.table in TABLES
        remedy = f"; `fleetrank report show {request.words}` prints all" if is_known else ""
        notes.append(f"{len(kept):,} of {frame.height:,} rows are on this page{remedy}.")
    frame, about = frame[kept], [subjects[number] or {} for number in kept]
    labels = Labels(shown.names)
    columns = [_column(frame, title, labels) for title in frame.columns]
    head = range(min(frame.height, MAX_STATIC_ROWS))
    return HtmlTable(
        id=request.file_stem,
        caption=table.title,
        heads=tuple(
            HtmlHead(
                text=heading(title), is_number=dtype.is_numeric(), hint=meaning_of_column(title)
            )
            for title, dtype in frame.schema.items()
        ),
        rows=tuple(
            HtmlRow(cells=tuple(column.cell(at) for column in columns), about=about[at])
            for at in head
        ),
        packed=_packed(columns, about) if frame.height > MAX_STATIC_ROWS else None,
        notes=tuple(notes),
        explanation=(*others, *table.explanation),
        is_open=is_open,
        is_statistic=is_statistic,
        count=f"{frame.height} row" if frame.height == 1 else f"{frame.height:,} rows",
    )


def html_of_rows(
    name: str, caption: str, rows: Sequence[Mapping[str, object]], notes: Iterable[str] = ()
) -> HtmlTable:
    """Turns rows with equal keys into cells; all of them are written as HTML."""
    grid = grid_of_rows(rows, has_headings=True, is_grouped=True)
    numbers = [column in grid.numbers for column in grid.columns]
    return HtmlTable(
        id=name,
        caption=caption,
        heads=tuple(
            HtmlHead(text=heading(title), is_number=is_number)
            for title, is_number in zip(grid.columns, numbers, strict=True)
        ),
        rows=tuple(
            HtmlRow(
                cells=tuple(
                    HtmlCell(text=text, is_number=is_number)
                    for text, is_number in zip(texts, numbers, strict=True)
                ),
                about={},
            )
            for texts in grid.lines[1:]
        ),
        notes=tuple(notes),
        count=count_of(len(rows), "row"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """A column as texts; `hints` has longer texts for some of them."""

    texts: list[str]
    hints: Mapping[str, str]
    is_number: bool

    def cell(self, at: int) -> HtmlCell:
        text = self.texts[at]
        return HtmlCell(text=text, is_number=self.is_number, hint=self.hints.get(text))


def _column(frame: pl.DataFrame, name: str, labels: Labels) -> _Column:
    texts = column_texts(frame, name, is_grouped=True)
    short = (
        {text: labels.said(text) for text in dict.fromkeys(texts)}
        if frame[name].dtype == pl.String
        else {}
    )
    return _Column(
        texts=[short.get(text, text) for text in texts],
        hints={label: key for key, label in short.items() if key in labels.names},
        is_number=frame[name].dtype.is_numeric(),
    )


def _packed(columns: Sequence[_Column], about: Sequence[Mapping[str, str]]) -> Json:
    """Columns of texts, each text once: most of a table's texts are names, flags and dashes."""
    return {
        "about": {
            kind: _coded([row.get(kind, "") for row in about])
            for kind in SUBJECTS
            if any(kind in row for row in about)
        },
        "columns": [
            {"number": column.is_number, "hints": dict(column.hints), **_coded(column.texts)}
            for column in columns
        ],
    }


def _coded(texts: Sequence[str]) -> Json:
    words = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    if 2 * len(words) > len(texts):
        return {"texts": list(texts)}
    return {"words": list(words), "codes": [words[text] for text in texts]}


_OF_ALL = (
    "latency", "latency/coldstart", "scaling/memory", "trust/dropped", "trust/host",
    "trust/waits", "flops/frm", "flops", "flops/models", "scaling",
)  # fmt: skip
_OF_TOKENS = ("tokens",)
_OF_SEGMENTS = ("tokens/reading", "tokens/crossover")
_OF_PROFILES = ("components", "components split=operator")
_OF_COMPARED_TOKENS = ("transfer/phases",)
"""Of a page about a workload with tokens."""
_OF_AVERAGED = ("transfer",)
_OF_COMPARED = (
    "transfer",
    "transfer along=runtime",
    "trust/stability",
    "trust/ranks",
)
"""With many platforms the means of `transfer` are those of `averaged`, and its pairs are these."""
_OF_PAIRED = ("frontier", "frontier/regret")
PREDICTED_LEAD = (
    "An open symbol with a thin line is a prediction and its 90 % interval, not a measurement."
)
_SLOW = ("trust/stability", "trust/ranks")
"""These tables make many draws even for few platforms; the cost of one grows with the models."""
_MANY_MODELS = 200


@dataclass(slots=True, kw_only=True)
class PageTables:
    """The tables by name and settings, as `table_request` takes them; filled table by table.

    Attributes:
        made: a table without an answer has no rows; its note is the reason.
        reasons: why a table has no answer, by name.
        transfer, frameworks, pareto: what these tables are made from;
            `None` without an answer.
        fleet: the latencies that answer about two models; `None` without any to rank.
        why_no_fleet: the reason.
        verdicts: every cell with its verdict.
        curves: the points of table `scaling`, of all workloads; `None` without two of an axis.
        phases: of `transfer/phases`; `None` without two workloads with tokens.
        predictions: of the page's platforms; `None` unless the page was asked to show them.
    """

    made: dict[str, Table] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    transfer: TransferResult | None = None
    frameworks: TransferResult | None = None
    pareto: ParetoResult | None = None
    predictions: PredictionsResult | None = None
    phases: PhasesResult | None = None
    curves: pl.DataFrame | None = None
    fleet: Json | None = None
    why_no_fleet: str = ""
    verdicts: pl.DataFrame = field(default_factory=pl.DataFrame)

    def __getitem__(self, name: str) -> Table:
        """The table of that name."""
        return self.made[name]

    def answered(self, *names: str) -> tuple[str, ...]:
        """Those of the tables that the page has with an answer."""
        return tuple(name for name in names if name in self.made and name not in self.reasons)


def page_tables(evidence: Evidence, *, is_predicted: bool = False) -> PageTables:
    """Computes all tables; those of one set of platforms share a session, one is kept at a time.

    Args:
        evidence: the rows and values of the page.
        is_predicted: also predict the latencies that platforms of the page lack.
    """
    found = PageTables()
    session, n = evidence.session(), len(evidence.shown.names)
    found.verdicts = with_verdicts(session)
    try:
        found.fleet = fleet_data(session)
    except AnalysisError as error:
        found.why_no_fleet = f"{error}."
    if is_predicted:
        found.predictions = _predictions(session, evidence.shown)
        found.made["predict"] = predictions_as_table(found.predictions, session)
    tokens = _OF_TOKENS if evidence.token_workloads else ()
    segments = _OF_SEGMENTS if evidence.has_segments else ()
    profiles = _OF_PROFILES if evidence.has_profiles else ()
    of_compared = _OF_COMPARED + (_OF_COMPARED_TOKENS if evidence.token_workloads else ())
    for keys, names in (
        (None, (*_OF_ALL, *tokens, *segments, *profiles)),
        (evidence.averaged_keys, _OF_AVERAGED),
        (evidence.compared_keys, of_compared),
        (evidence.paired_keys, _OF_PAIRED),
    ):
        if keys is not None and len(keys) < n:
            session, n = session.narrowed(pl.col("platform_key").is_in(list(keys))), len(keys)
        for name in names:
            pause_between_steps(f"makes the table {name}")
            try:
                found.made[name] = _table(name, session, evidence, found)
            except AnalysisError as error:
                found.reasons[name] = str(error)
                request = table_request(name)
                settings = (f"{setting} {word}" for setting, word in request.choices)
                title = ", ".join((request.table.capitalize(), *settings))
                found.made[name] = Table(title=title, frame=pl.DataFrame(), notes=(str(error),))
    return found


def _every_workload(session: Session) -> Session:
    """All workloads: the page's own one chooses the other tables."""
    return session.asked(replace(session.selection, workload=None))


def _table(name: str, session: Session, evidence: Evidence, found: PageTables) -> Table:
    request, n_models = table_request(name), evidence.cells["model"].n_unique()
    if name in _SLOW and n_models > _MANY_MODELS:
        raise AnalysisError(
            f"not computed for the page: it takes too long for {n_models:,} models",
            f"fleetrank report show {request.words}",
        )
    if name == "transfer":
        mine, means = transfer(session), found.transfer
        found.transfer = mine if means is None else replace(means, pairs=mine.pairs)
        return transfer_as_table(found.transfer)
    if name == "transfer along=runtime":
        found.frameworks = transfer(session, Axis.RUNTIME)
        return transfer_as_table(found.frameworks)
    if name == "scaling":
        found.curves = scaling_points(_every_workload(session))
        return session_table(name, _every_workload(session))
    if name == "transfer/phases":
        found.phases = phases(_every_workload(session))
        return phases_table(_every_workload(session))
    table = session_table(request.name, session.asked(request.selection(session.selection)))
    if name == "frontier":
        found.pareto = pareto(session)
    return table


def _predictions(session: Session, shown: Shown) -> PredictionsResult:
    """Predicted latencies of the page's models on those of its platforms that lack them."""
    counts = dict(shown.cells.group_by("platform_key").len().iter_rows())
    rows: list[Prediction] = []
    unpredicted: list[str] = []
    for key in shown.platforms:
        if counts.get(key, 0) == len(shown.models):
            continue
        try:
            found = predict(session.asked(replace(session.selection, target=key))).rows
        except NoDataError:
            unpredicted.append(key)
            continue
        rows += [one for one in found if one.measured is None and one.model in shown.model_at]
    return PredictionsResult(rows=tuple(rows), unpredicted=tuple(unpredicted))
