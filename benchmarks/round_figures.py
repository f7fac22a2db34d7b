"""What the lines that `rounds.py measure` wrote show about both designs."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.round_effects import effects_of

Rows = Sequence[Mapping[str, object]]
_LEVEL = 0.95
_DESIGNS = ("rounds", "isolated")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """A standard deviation of the log ratio of two processes, and its degrees of freedom."""

    value: float
    freedom: int

    def shown(self) -> str:
        """The value in per cent, with its interval (chi-square)."""
        tail = (1 - _LEVEL) / 2
        ends = (self.freedom / stats.chi2.ppf(end, self.freedom) for end in (1 - tail, tail))
        low, high = (self.value * math.sqrt(end) for end in ends)
        return f"{self.value:.1%} [{low:.1%}, {high:.1%}]"

    def over(self, other: "Deviation") -> str:
        """This one divided by another one, with its interval (F distribution)."""
        quotient, tail = self.value / other.value, (1 - _LEVEL) / 2
        ends = (stats.f.ppf(end, self.freedom, other.freedom) for end in (1 - tail, tail))
        low, high = (quotient / math.sqrt(end) for end in ends)
        return f"{quotient:.2f} [{low:.2f}, {high:.2f}]"


def print_designs(rows: Rows) -> None:
    """Prints both designs for each runtime, then what rounds do to latencies."""
    rows = _in_both(rows)
    cells = sorted({str(row["cell"]) for row in rows})
    for runtime in sorted({cell.split("/")[0] for cell in cells}):
        mine = [row for row in rows if str(row["cell"]).startswith(f"{runtime}/")]
        rounds, isolated = (_table(mine, design) for design in _DESIGNS)
        inside, beside, apart = _inside(rounds), _inside(isolated), _apart(isolated)
        print(f"\n{runtime}: {len(rounds)} models, {rounds.shape[1]} groups")
        print(f"  deviation of a ratio, in rounds          {inside.shown()}")
        print(f"  one after the other, in a group          {beside.shown()}")
        print(f"  one after the other, at any time         {apart.shown()}")
        print(f"  rounds / at any time                     {inside.over(apart)}")
        print(f"  rounds / in a group                      {inside.over(beside)}")
        for name, table in (("rounds", rounds), ("isolated", isolated)):
            seconds = [float(str(row["seconds"])) for row in mine if row["design"] == name]
            print(
                f"  {name}: halves agree on ranks {_halves(table, name, mine):.3f}, "
                f"{np.mean(seconds):.2f} s for each process"
            )
    print("\nlatency in rounds / one after the other - 1, paired by group")
    _print_bias(rows, cells)


def _in_both(rows: Rows) -> Rows:
    """Without cells of the last group that were not measured in both designs yet."""
    seen = [
        {(row["group"], row["cell"]) for row in rows if row["design"] == name} for name in _DESIGNS
    ]
    return [row for row in rows if all((row["group"], row["cell"]) in one for one in seen)]


def _print_bias(rows: Rows, cells: Sequence[str]) -> None:
    means: dict[str, list[float]] = {"all": []}
    beyond = 0
    for cell in cells:
        mine = [row for row in rows if row["cell"] == cell]
        rounds, isolated = (_table(mine, design)[0] for design in _DESIGNS)
        shift, half = _mean(rounds - isolated)
        for name in ("all", cell.split("/")[0]):
            means.setdefault(name, []).append(shift)
        beyond += abs(shift) - half > 0.01
        print(f"  {cell:28}{shift:8.1%} +- {half:.1%}")
    for name, shifts in means.items():
        shift, half = _mean(np.array(shifts))
        print(f"  {name}: {shift:.2%} +- {half:.2%} over {len(shifts)} models")
    print(f"  beyond 1 % and its interval: {beyond} of {len(cells)}")


def print_same(rows: Rows) -> None:
    """Prints what rounds of equal models show: the share that is called different."""
    table = _table(rows, "rounds")
    differences = table[1] - table[0]
    shift, half = _mean(differences)
    n = differences.size
    print(f"{n} rounds of equal models: ratio - 1 {shift:.2%} +- {half:.2%}")
    for size in (5, 10):
        parts = [differences[at : at + size] for at in range(0, n - size + 1, size)]
        found = sum(stats.ttest_1samp(part, 0.0).pvalue < 1 - _LEVEL for part in parts)
        print(f"called different by {size} rounds: {found} of {len(parts)}")
    print(f"called different by all: {abs(shift) > half}")


def _table(rows: Rows, design: str) -> Floats:
    """Log latencies of one design, (n_cells, n_groups), NaN where a cell was not in a group."""
    mine = [row for row in rows if row["design"] == design]
    cells = sorted({str(row["cell"]) for row in mine})
    names = sorted({str(row["group"]) for row in mine})
    table = np.full((len(cells), len(names)), np.nan)
    for row in mine:
        blocks = row["block_medians_ns"]
        level = np.mean(np.log(blocks)) if blocks else math.log(float(str(row["median_ns"])))
        table[cells.index(str(row["cell"])), names.index(str(row["group"]))] = level
    return table


def _inside(table: Floats) -> Deviation:
    """From the rests of log latency = model + group."""
    at_row, at_column = np.nonzero(np.isfinite(table))
    design = np.zeros((at_row.size, sum(table.shape)))
    design[np.arange(at_row.size), at_row] = 1.0
    design[np.arange(at_row.size), table.shape[0] + at_column] = 1.0
    values = table[at_row, at_column]
    found, _, rank, _ = np.linalg.lstsq(design, values, rcond=None)
    freedom = values.size - int(rank)
    return _of_ratio(float(((values - design @ found) ** 2).sum()), freedom)


def _apart(table: Floats) -> Deviation:
    """From the processes of each model."""
    rests = table - np.nanmean(table, axis=1, keepdims=True)
    freedom = int(np.isfinite(table).sum()) - table.shape[0]
    return _of_ratio(float(np.nansum(rests**2)), freedom)


def _of_ratio(squares: float, freedom: int) -> Deviation:
    return Deviation(value=math.sqrt(2 * squares / freedom), freedom=freedom)


def _halves(table: Floats, design: str, rows: Rows) -> float:
    """Mean rank correlation of two halves of the repeats, over all ways to halve them."""
    names = sorted({str(row["group"]) for row in rows})
    repeats = np.array([int(name.split("/")[0]) for name in names])
    every = sorted(set(repeats.tolist()))
    found = []
    for half in itertools.combinations(every, len(every) // 2):
        is_first = np.isin(repeats, half)
        levels = [_levels(table[:, which], design) for which in (is_first, ~is_first)]
        found.append(stats.spearmanr(*levels).statistic)
    return float(np.mean(found))


def _levels(table: Floats, design: str) -> Floats:
    return effects_of(table).rows if design == "rounds" else np.nanmean(table, axis=1)


def _mean(values: Floats) -> tuple[float, float]:
    """Mean and the half-width of its interval (Student)."""
    known = values[np.isfinite(values)]
    t = stats.t.ppf((1 + _LEVEL) / 2, known.size - 1)
    return float(known.mean()), float(t * known.std(ddof=1) / math.sqrt(known.size))
