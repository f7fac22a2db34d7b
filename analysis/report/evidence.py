"""All data of the page, read once."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from fleetrank.analysis.figures.labels import chosen_platforms
from fleetrank.analysis.figures.points import process_medians, sample_quantiles, sampled_processes
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.report.shown import Shown, choose_shown
from fleetrank.analysis.stored.columns import ORIGINS, ROW_KEY
from fleetrank.analysis.stored.load import load_measurements, valid_attempts
from fleetrank.analysis.stored.scope import Scope, select_attempts, select_cells
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.stored.sweep_record import SweepRecord, read_record

_SAMPLES = ("samples_ns", "device_samples_ns")
"""Samples are most of the bytes. Tables need only the stored summaries, strips some samples."""
_MAX_COMPARED = 60
"""Their 1,770 pairs are compared. With intervals and nulls this takes about 2 s, also for a
thousand models. At least 51, because from there on `pairs.draws_for` makes fewer draws."""
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
        processes: as `figures.points.process_medians` gives them.
        quantiles: as `figures.points.sample_quantiles` gives them, of the cells shown.
        shown: what is on the page.
        limits: notes on platforms that are not compared, and where to see them.
        records: of the sweeps in `attempts`, newest first; only its id where one cannot be read.
    """

    attempts: pl.LazyFrame
    averaged_keys: tuple[str, ...]
    compared_keys: tuple[str, ...]
    paired_keys: tuple[str, ...]
    selected: pl.LazyFrame
    scope: Scope
    processes: pl.DataFrame
    quantiles: pl.DataFrame
    shown: Shown
    limits: tuple[str, ...]
    records: tuple[SweepRecord, ...]
    selection: Selection

    @property
    def cells(self) -> pl.DataFrame:
        """The selected cells, as `cells_table.cell_values` gives them."""
        return self.scope.cells

    @property
    def said(self) -> tuple[str, ...]:
        """Notes about the whole page."""
        return self.scope.notes

    def session(self) -> Session:
        """A session of all platforms; its arrays are kept as long as the caller keeps it."""
        return Session(self.attempts, self.selection, cells=self.scope)


def gather(results: Path, selection: Selection) -> Evidence:
    """Reads only the data that the page needs.

    Raises:
        NoDataError: there are no measurements, or no successful ones.
    """
    scan = load_measurements(results, sweep=selection.sweep, origins=ORIGINS)
    blank = (pl.lit(None, dtype=pl.List(pl.Int64)).alias(name) for name in _SAMPLES)
    attempts = scan.with_columns(blank).collect().lazy()
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
    return Evidence(
        attempts=attempts,
        averaged_keys=averaged,
        compared_keys=compared,
        paired_keys=paired,
        selected=selected,
        scope=scope,
        processes=process_medians(of_shown),
        quantiles=sample_quantiles(scan, sampled_processes(of_shown)),
        shown=shown,
        limits=tuple(_limits(len(averaged), len(compared), len(paired), len(shown.names))),
        records=tuple(_records(results, scope.cells)),
        selection=selection,
    )


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


def _records(results: Path, cells: pl.DataFrame) -> Sequence[SweepRecord]:
    sweeps = cells.group_by("sweep_id").agg(pl.col("started_utc").min())
    newest_first = sweeps.sort("started_utc", descending=True, nulls_last=True)["sweep_id"]
    return [read_record(results / "sweeps" / f"{sweep}.json") for sweep in newest_first]
