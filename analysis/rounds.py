"""Latencies of models that took turns, without what the host did meanwhile.

Inside a round, log of a block's median = cell + block + rest; over the rounds of a sweep, log level
= cell + round + rest. The cells of a round meet the same states of the host, so the effect of the
round is taken away from each of them. Rankings, ratios and tests use the result; the latency that
people read stays the median.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.round_effects import block_effects, effects_of
from fleetrank.analysis.stored.cell_values import MIN_REPEATS
from fleetrank.analysis.stored.columns import ROW_KEY
from fleetrank.analysis.stored.load import last_attempts
from fleetrank.analysis.stored.scope import Scope
from fleetrank.foundation.wording import count_of

_LATENCY = "latency_p50_ns"
_ROUND, _CELL = ("sweep_id", "round_id"), ("sweep_id", "cell_key")
_COLUMNS = (
    *ROW_KEY, "round_id", "device", _LATENCY, "block_medians_ns", "block_starts_ns", "started_utc",
)  # fmt: skip
_ADJUSTED = {
    "sweep_id": pl.String, "round_id": pl.String, "cell_key": pl.String, "adjusted_ns": pl.Float64,
    "level_ns": pl.Float64,
}  # fmt: skip
_OF_CELL = {
    "sweep_id": pl.String, "cell_key": pl.String, "latency_ns": pl.Float64,
    "latency_low_ns": pl.Float64, "latency_high_ns": pl.Float64,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRound:
    """One round: what its cells had in common, and what remained. Effects are logarithms.

    Attributes:
        device: on which its cells were measured.
        began_utc: start of its first worker.
        cells: keys, (n_cells,).
        levels: of each cell, (n_cells,).
        blocks: effect of each cycle of blocks, (n_blocks,); 0 is the mean of the round. Empty if
            the rows have no medians of blocks.
        rests: (n_cells, n_blocks), NaN where a cell has no block.
        starts_ns: of each cycle, after the start of the first block, (n_blocks,); NaN if not known.
        above: effect of the round; 0 is the mean of the rounds of the sweep that share cells with
            it, directly or through others. `None` if no two cells took turns in these.
    """

    sweep_id: str
    round_id: str
    device: str
    began_utc: datetime | None
    cells: tuple[str, ...]
    levels: Floats
    blocks: Floats
    rests: Floats
    starts_ns: Floats
    above: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundValues:
    """The values that rank models that took turns.

    Attributes:
        adjusted: `ROW_KEY` and the latency of a process without the effect of its round. The
            geometric mean over a cell's processes is the cell's value. The spread of `adjusted_ns`
            gives the error of its ratio to another cell of the sweep, that of `level_ns` to a cell
            of another sweep: see `round_effects.Effects`.
        cells: `sweep_id`, `cell_key`, and the columns of `cell_values.cell_values` that change.
        rounds: every round, in order of time.
    """

    adjusted: pl.DataFrame
    cells: pl.DataFrame
    rounds: tuple[MeasuredRound, ...]

    def of_attempts(self, attempts: pl.LazyFrame, name: str = "adjusted_ns") -> pl.LazyFrame:
        """Attempts with the latency without the effect of the round, where there is one.

        Args:
            attempts: rows of the table.
            name: a column of `adjusted`.
        """
        if self.adjusted.is_empty():
            return attempts
        values = self.adjusted.lazy().select(*ROW_KEY, name)
        joined = attempts.join(values, on=ROW_KEY, how="left", maintain_order="left")
        return joined.with_columns(pl.coalesce(name, _LATENCY).alias(_LATENCY)).drop(name)

    def of_cells(self, scope: Scope) -> Scope:
        """Cells with the value that ranks them, its interval, and a note that says so."""
        changed = scope.cells.join(self.cells.select(_CELL), on=_CELL, how="semi")
        if changed.is_empty():
            return scope
        cells = scope.cells.update(self.cells, on=_CELL, how="left", maintain_order="left")
        platforms = count_of(changed["platform_key"].n_unique(), "platform")
        note = (
            f"Models of {platforms} took turns in rounds: their latencies are compared without the "
            "effects of the host that they had in common; the table `latency` has the medians."
        )
        return Scope(cells=cells, notes=(*scope.notes, note))


def round_values(frame: pl.LazyFrame, attempts: pl.LazyFrame) -> RoundValues:
    """Values of all rounds of the sweeps and devices of some attempts.

    Args:
        frame: every stored attempt; a cell that is not selected still shows what the host did.
        attempts: the selected ones.
    """
    rows = _rows(frame, attempts)
    rounds = [_round(part) for _, part in rows.group_by(_ROUND, maintain_order=True)]
    fits = [_ValueFit(group) for group in _connected(rounds)]
    above = {one: value for fit in fits for one, value in fit.above().items()}
    placed = [replace(one, above=above.get((one.sweep_id, one.round_id))) for one in rounds]
    adjusted = pl.concat([pl.DataFrame(schema=_ADJUSTED), *(fit.adjusted() for fit in fits)])
    return RoundValues(
        adjusted=rows.select(*ROW_KEY, "round_id")
        .join(adjusted, on=(*_ROUND, "cell_key"), maintain_order="left")
        .drop("round_id"),
        cells=pl.concat([pl.DataFrame(schema=_OF_CELL), *(fit.of_cells() for fit in fits)]),
        rounds=tuple(
            sorted(placed, key=lambda one: (one.sweep_id, str(one.began_utc), one.round_id))
        ),
    )


def _rows(frame: pl.LazyFrame, attempts: pl.LazyFrame) -> pl.DataFrame:
    of_rounds = pl.col("round_id").is_not_null()
    chosen = attempts.filter(of_rounds).select("sweep_id", "device").unique()
    return (
        last_attempts(frame.filter(of_rounds))
        .filter(pl.col(_LATENCY) > 0)
        .join(chosen, on=("sweep_id", "device"), how="semi")
        .select(_COLUMNS)
        .sort(*_ROUND, "cell_key")
        .collect()
    )


def _round(rows: pl.DataFrame) -> MeasuredRound:
    """The cells of one round; without medians of blocks a cell's level is its process median."""
    medians = _table(rows["block_medians_ns"])
    starts = _table(rows["block_starts_ns"])
    levels = np.log(rows[_LATENCY].to_numpy())
    blocks, rests = np.empty(0), np.empty((rows.height, 0))
    if medians.size and bool(np.isfinite(medians).any(axis=1).all()):
        levels, blocks, rests = block_effects(np.log(medians))
    begins = np.full(blocks.size, np.nan)
    if blocks.size and starts.shape == medians.shape:
        begins = np.nanmin(starts, axis=0) - np.nanmin(starts)
    return MeasuredRound(
        sweep_id=rows["sweep_id"][0],
        round_id=rows["round_id"][0],
        device=rows["device"][0],
        began_utc=min(rows["started_utc"].drop_nulls(), default=None),
        cells=tuple(rows["cell_key"]),
        levels=levels,
        blocks=blocks,
        rests=rests,
        starts_ns=begins,
    )


def _table(lists: pl.Series) -> Floats:
    """Lists as rows of an array (n, longest), NaN where one is shorter."""
    rows = [[] if values is None else values for values in lists.to_list()]
    table = np.full((len(rows), max(map(len, rows), default=0)), np.nan)
    for row, values in zip(table, rows, strict=True):
        row[: len(values)] = values
    return table


def _connected(rounds: Sequence[MeasuredRound]) -> list[list[MeasuredRound]]:
    """Rounds that share cells, directly or through others, and have a round of two cells or more.

    Between others no ratio was measured in turns; each keeps its own level.
    """
    groups: list[tuple[set[tuple[str, str]], list[MeasuredRound]]] = []
    for one in rounds:
        cells = {(one.sweep_id, cell) for cell in one.cells}
        met = [group for group in groups if not cells.isdisjoint(group[0])]
        groups = [group for group in groups if cells.isdisjoint(group[0])]
        cells.update(*(known for known, _ in met))
        groups.append((cells, [*(old for _, group in met for old in group), one]))
    return [group for _, group in groups if any(len(one.cells) > 1 for one in group)]


class _ValueFit:
    """Effects of connected rounds of one sweep."""

    def __init__(self, rounds: Sequence[MeasuredRound]) -> None:
        self._rounds = rounds
        self._cells = sorted({cell for one in rounds for cell in one.cells})
        row = {cell: at for at, cell in enumerate(self._cells)}
        levels = np.full((len(self._cells), len(rounds)), np.nan)
        for at, one in enumerate(rounds):
            levels[[row[cell] for cell in one.cells], at] = one.levels
        self._effects = effects_of(levels)

    def above(self) -> Mapping[tuple[str, str], float]:
        """Effect of each round, by sweep and round."""
        values = self._effects.columns.tolist()
        keys = ((one.sweep_id, one.round_id) for one in self._rounds)
        return dict(zip(keys, values, strict=True))

    def adjusted(self) -> pl.DataFrame:
        """Adjusted latencies by sweep, cell and round."""
        both = np.stack([self._effects.adjusted, self._effects.levels], axis=2)
        rows = [
            (one.sweep_id, one.round_id, cell, *np.exp(both[row, column]).tolist())
            for column, one in enumerate(self._rounds)
            for row, cell in enumerate(self._cells)
            if np.isfinite(both[row, column, 0])
        ]
        return pl.DataFrame(rows, schema=_ADJUSTED, orient="row")

    def of_cells(self) -> pl.DataFrame:
        """The value of each cell and its 95 % interval, from 5 repeats on."""
        # Tables without rounds need no SciPy.
        from fleetrank.analysis.arrays.interval import half_width, shrunk

        effects = self._effects
        counts = np.isfinite(effects.adjusted).sum(axis=1)
        squares = np.nansum((effects.adjusted - effects.rows[:, None]) ** 2, axis=1)
        degrees = np.maximum(counts - 1.0, 0.0)
        variance, freedom = shrunk(squares, degrees, np.ones(counts.size, dtype=np.bool_))
        reach = half_width(variance / np.maximum(counts, 1), freedom)
        half = np.where(counts >= MIN_REPEATS, reach, np.nan)
        found = {
            "sweep_id": [self._rounds[0].sweep_id] * len(self._cells),
            "cell_key": self._cells,
            "latency_ns": np.exp(effects.rows),
            "latency_low_ns": np.exp(effects.rows - half),
            "latency_high_ns": np.exp(effects.rows + half),
        }
        return pl.DataFrame(found, schema=_OF_CELL, nan_to_null=True)
