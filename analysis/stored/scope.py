"""The cells a table speaks of, and the notes it owes its reader about them."""

from dataclasses import dataclass

import polars as pl

from fleetrank.analysis.counting import count_of
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.stored.cells_table import MIN_REPEATS, cell_values
from fleetrank.analysis.stored.exclusions import exclusion_notes, not_excluded
from fleetrank.analysis.stored.last_result import LastResult
from fleetrank.analysis.stored.patterns import matches
from fleetrank.analysis.stored.selection import Selection

_UNREAL = {"simulated": "no device made them", "virtual": "made on stand-in devices"}
_NAMED = 6
"""Devices a sentence names: more nobody reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Selected cells, one row each as `cells_table.cell_values` gives them, with their notes."""

    cells: pl.DataFrame
    notes: tuple[str, ...]


def select_attempts(frame: pl.LazyFrame, selection: Selection) -> pl.LazyFrame:
    """Every attempt that counts and that the selection covers, failures included."""
    return not_excluded(select_stored(frame, selection))


def select_stored(frame: pl.LazyFrame, selection: Selection) -> pl.LazyFrame:
    """Every attempt the selection covers, those excluded by hand as well.

    Source, target and tiers say what to compare with what; they do not narrow here.
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


_last: LastResult[Scope] = LastResult()
"""Making cells of a million rows takes longer than most tables."""


def select_cells(frame: pl.LazyFrame, selection: Selection) -> Scope:
    """Values of the selected cells and what every table says about them.

    Asked again of the same frame (the same object) it does not look at the files again.

    Raises:
        NoDataError: nothing was measured there, or every attempt failed.
    """
    key = (
        selection.sweep, selection.runtime, selection.precision, selection.family,
        selection.model, selection.origins,
    )  # fmt: skip
    return _last.get(frame, key, lambda: _make_cells(frame, selection))


def _make_cells(frame: pl.LazyFrame, selection: Selection) -> Scope:
    attempts = select_attempts(frame, selection)
    cells = cell_values(attempts)
    excluded = exclusion_notes(select_stored(frame, selection))
    if cells.is_empty():
        raise NoDataError(
            " ".join(("no successful measurement fits the selection.", *excluded)).rstrip("."),
            "widen the selection (`--include-simulated` takes virtual and simulated devices in), "
            "or see `fleetrank report show dropped`"
            + (" and `fleetrank results exclude`" if excluded else ""),
        )
    lost = _lost(attempts, cells)
    notes = (*_banner(cells), _counts(cells), *_memory(cells), *excluded, *lost)
    return Scope(cells=cells, notes=notes)


def _banner(cells: pl.DataFrame) -> tuple[str, ...]:
    parts = {name: cells.filter(pl.col("origin") == name) for name in _UNREAL}
    return tuple(
        f"NOT MEASURED ON REAL DEVICES: {part.height} of {cells.height} rows are {name}, "
        f"{_UNREAL[name]}: {devices_of(part)}."
        for name, part in parts.items()
        if part.height
    )


def _memory(cells: pl.DataFrame) -> tuple[str, ...]:
    """Ways of counting memory that a ratio cannot level out, wherever there is more than one."""
    counted = cells.drop_nulls("memory_metric")
    kinds = sorted(counted["memory_metric"].unique())
    if len(kinds) < 2:
        return ()
    parts = (counted.filter(pl.col("memory_metric") == kind) for kind in kinds)
    told = "; ".join(
        f"{kind} on {devices_of(part)}" for kind, part in zip(kinds, parts, strict=True)
    )
    return (f"Peak memory is counted in unlike ways, which enter FRM as they are: {told}.",)


def devices_of(cells: pl.DataFrame) -> str:
    """The devices of some cells, the first of them by name."""
    names = sorted(cells["device"].unique())
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _counts(cells: pl.DataFrame) -> str:
    """What every figure states: how much stands behind it."""
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
            f" {few} of {cells.height} rows have fewer than {MIN_REPEATS} repeats "
            "and carry no interval."
        )
    return text


def _lost(attempts: pl.LazyFrame, cells: pl.DataFrame) -> tuple[str, ...]:
    """Cells without any valid attempt, and those kept under doubt."""
    tried = attempts.select("model", "platform_key").unique().collect()
    missing = tried.height - cells.select("model", "platform_key").unique().height
    doubted = int((cells["flags"].list.len() > 0).sum())
    notes = []
    if missing:
        noun = count_of(missing, "model on a platform", "models on platforms")
        notes.append(f"Dropped: {noun} with failed attempts only (table `dropped`).")
    if doubted:
        notes.append(f"{doubted} of {cells.height} rows carry a flag and are kept (`quality`).")
    return tuple(notes)
