"""All data of the page, read once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from fleetrank.analysis.chart_points import process_medians, sample_quantiles, sampled_processes
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.figures import chosen_platforms
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.report.shown import Shown, choose_shown
from fleetrank.analysis.rounds import MeasuredRound, round_values
from fleetrank.analysis.statistics.scaling.sustained import sustained_rows
from fleetrank.analysis.stored.cell_values import cell_values
from fleetrank.analysis.stored.chosen_workload import refuse_absent_workload, workloads_of
from fleetrank.analysis.stored.columns import ORIGINS, ROW_KEY
from fleetrank.analysis.stored.component_times import COMPONENT_TIMES
from fleetrank.analysis.stored.load import IS_SUSTAINED, load_measurements, valid_attempts
from fleetrank.analysis.stored.named_precision import of_precisions
from fleetrank.analysis.stored.scope import Scope, of_every_workload, select_attempts, select_cells
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.stored.side_tables import read_side
from fleetrank.analysis.stored.sweep_record import SweepRecord, read_record
from fleetrank.analysis.stored.sweep_tags import SweepTags, shown_tags
from fleetrank.analysis.stored.unmatched import with_whole_names
from fleetrank.foundation.workload import IMAGE, Workload, WorkloadKind

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
    scope = select_cells(attempts, selection, workloads)
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
