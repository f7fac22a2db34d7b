"""The cells of a table, and the notes that every table states about them."""

from dataclasses import dataclass

import polars as pl

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.stored.cells_table import MIN_REPEATS, cell_values
from fleetrank.analysis.stored.exclusions import exclusion_notes, not_excluded
from fleetrank.analysis.stored.patterns import matches
from fleetrank.analysis.stored.selection import Selection
from fleetrank.foundation.wording import count_of

_UNREAL = {"simulated": "SIMULATED DATA", "virtual": "DATA FROM VIRTUAL DEVICES"}
_NAMED = 6
"""A sentence names at most this many devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Selected cells, rows of `cells_table.cell_values`, with their notes."""

    cells: pl.DataFrame
    notes: tuple[str, ...]


def select_attempts(frame: pl.LazyFrame, selection: Selection) -> pl.LazyFrame:
    """All selected attempts that are not excluded, including failures."""
    return not_excluded(select_stored(frame, selection))


def select_stored(frame: pl.LazyFrame, selection: Selection) -> pl.LazyFrame:
    """All selected attempts, including those excluded by hand.

    Source, target and tiers choose what is compared; they do not filter rows here.
    """
    chosen = frame.filter(pl.col("origin").is_in(list(selection.origins)))
    for name, wanted in (
        ("sweep_id", selection.sweep),
        ("runtime", selection.runtime),
        ("precision", selection.precision),
        ("family", selection.family),
    ):
        if wanted is not None:
            chosen = chosen.filter(pl.col(name) == wanted)
    if selection.model is not None:
        chosen = chosen.filter(matches("model", selection.model))
    return chosen


def select_cells(frame: pl.LazyFrame, selection: Selection) -> Scope:
    """Values of the selected cells, and the notes of every table; see `session.Session.cells`.

    Raises:
        NoDataError: the selection has no measurements, or every attempt failed.
    """
    attempts = select_attempts(frame, selection)
    cells = cell_values(attempts)
    excluded = exclusion_notes(select_stored(frame, selection))
    if cells.is_empty():
        raise NoDataError(
            " ".join(("no successful measurement matches the selection.", *excluded)).rstrip("."),
            "widen the selection (`--include-simulated` adds virtual and simulated devices), or "
            "see `fleetrank report show dropped`"
            + (" and `fleetrank results exclude`" if excluded else ""),
        )
    lost = _lost(attempts, cells)
    notes = (*_banner(cells), _counts(cells), *_memory(cells), *excluded, *lost)
    return Scope(cells=cells, notes=notes)


def _banner(cells: pl.DataFrame) -> tuple[str, ...]:
    parts = {name: cells.filter(pl.col("origin") == name) for name in _UNREAL}
    return tuple(
        f"{_UNREAL[name]}: {_rows_of(part, cells)} ({devices_of(part)})."
        for name, part in parts.items()
        if part.height
    )


def _rows_of(part: pl.DataFrame, cells: pl.DataFrame) -> str:
    """How many of the rows of a table are of one origin."""
    n = cells.height
    return f"all {count_of(n, 'row')}" if part.height == n else f"{part.height} of {n} rows"


def _memory(cells: pl.DataFrame) -> tuple[str, ...]:
    """A note if devices count memory in different ways, which a ratio cannot correct."""
    counted = cells.drop_nulls("memory_metric")
    kinds = sorted(counted["memory_metric"].unique())
    if len(kinds) < 2:
        return ()
    parts = (counted.filter(pl.col("memory_metric") == kind) for kind in kinds)
    counted_by = "; ".join(
        f"{kind} on {devices_of(part)}" for kind, part in zip(kinds, parts, strict=True)
    )
    return (
        "Devices count peak memory in different ways. FRM uses the figures without correction: "
        f"{counted_by}.",
    )


def devices_of(cells: pl.DataFrame) -> str:
    """The devices of some cells; only the first few have their names listed."""
    names = sorted(cells["device"].unique())
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _counts(cells: pl.DataFrame) -> str:
    """How many models, platforms, devices and repeats a table uses."""
    seeds = ", ".join(str(seed) for seed in sorted(cells["seed"].drop_nulls().unique()))
    repeats = sorted(cells["n_repeats"].unique())
    text = (
        f"{count_of(cells['model'].n_unique(), 'model')}, "
        f"{count_of(cells['platform_key'].n_unique(), 'platform')}, "
        f"{count_of(cells['device_model'].n_unique(), 'device model')}; "
        f"seeds of the sweeps: {seeds or 'not recorded'}; "
        f"repeats per cell: {'-'.join(str(n) for n in sorted({repeats[0], repeats[-1]}))}."
    )
    few = int((cells["n_repeats"] < MIN_REPEATS).sum())
    if few:
        text += (
            f" {few} of {cells.height} rows have fewer than {MIN_REPEATS} repeats and no interval."
        )
    return text


def _lost(attempts: pl.LazyFrame, cells: pl.DataFrame) -> tuple[str, ...]:
    """Notes on cells without a valid attempt and on cells with a quality flag."""
    tried = attempts.select("model", "platform_key").unique().collect()
    missing = tried.height - cells.select("model", "platform_key").unique().height
    doubted = int((cells["flags"].list.len() > 0).sum())
    notes = []
    if missing:
        noun = count_of(missing, "model on a platform", "models on platforms")
        notes.append(f"Dropped: {noun} with failed attempts only (table `dropped`).")
    if doubted:
        notes.append(
            f"{doubted} of {cells.height} rows carry a quality flag and are kept (table `quality`)."
        )
    return tuple(notes)
