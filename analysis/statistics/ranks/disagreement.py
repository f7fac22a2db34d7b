"""Models whose measured rank differs from their rank by FLOPs."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats, average_ranks
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.panel import Measure, Panel, incomplete_notes, measures
from fleetrank.analysis.panel.session import Session, once_a_session
from fleetrank.analysis.statistics.ranks.wrong_pairs import (
    DRAWS,
    WrongShare,
    share_with_interval,
)
from fleetrank.analysis.tables.table import Table, explained, frame_of

MIN_SHIFT = 2.0
"""Rank difference that counts as a disagreement. Source: the study's Table 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """The figures of a ranking without any relation to FLOPs on one platform.

    Attributes:
        share: expected share of models that shift by `MIN_SHIFT` or more.
        any_share: probability that at least one does.
    """

    share: float
    any_share: float


def rank_shifts(flops: Floats, metric: Floats) -> Floats:
    """Rank by the metric minus rank by FLOPs, both (n_models,); above 0 is worse than by FLOPs."""
    return average_ranks(metric[:, None])[:, 0] - average_ranks(flops[:, None])[:, 0]


def chance_of_shift(flops: Floats, metric: Floats) -> Chance:
    """Shifts of the metric's own ranks in random order; ties are kept. Both figures are exact."""
    by_flops = average_ranks(flops[:, None])[:, 0]
    by_metric = average_ranks(metric[:, None])[:, 0]
    share = (np.abs(by_metric[:, None] - by_flops) >= MIN_SHIFT).mean()
    n_orders = math.factorial(by_metric.size)
    n_without = _orders_without_case(by_flops, by_metric)
    return Chance(share=float(share), any_share=(n_orders - n_without) / n_orders)


def _orders_without_case(by_flops: Floats, by_metric: Floats) -> int:
    """In how many orders of the metric's ranks no model shifts by `MIN_SHIFT` or more.

    The models get their ranks one by one, by FLOPs upwards. What remains is the number of ranks of
    each height that are in reach and not given yet: one that falls out of reach must be given.
    """
    heights, sizes = np.unique(by_metric, return_counts=True)
    ways: dict[tuple[int, ...], int] = {(): 1}
    first = 0
    for rank in np.sort(by_flops):
        low = int(np.searchsorted(heights, rank - MIN_SHIFT, side="right"))
        high = int(np.searchsorted(heights, rank + MIN_SHIFT, side="left"))
        following: Counter[tuple[int, ...]] = Counter()
        for known, n_ways in ways.items():
            left = (*known, *map(int, sizes[first + len(known) : high]))
            if any(left[: low - first]):
                continue
            left = left[low - first :]
            for at, n_free in enumerate(left):
                following[(*left[:at], n_free - 1, *left[at + 1 :])] += n_ways * n_free
        ways, first = {left: n for left, n in following.items() if n}, low
    return sum(ways.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformShifts:
    """How far the ranks by one measure are from the ranks by FLOPs on one platform.

    Attributes:
        rows: positions of its models in the panel, (n_models,).
        shifts: rank by the measure minus rank by FLOPs, (n_models,).
    """

    measure: str
    rows: npt.NDArray[np.int64]
    shifts: Floats
    chance: Chance

    @property
    def n_cases(self) -> int:
        """Models that shift by `MIN_SHIFT` or more."""
        return int((np.abs(self.shifts) >= MIN_SHIFT).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """Cases of one measure over all platforms, with the figures of a random ranking.

    Attributes:
        decisions: pairs of models of which FLOPs name the wrong one; by chance one half of them.
    """

    measure: str
    n_platforms: int
    n_values: int
    cases: int
    share: float
    chance_share: float
    platforms_with_any: float
    chance_platforms_with_any: float
    decisions: WrongShare


@once_a_session
def shifts_from_flops(session: Session) -> tuple[PlatformShifts, ...]:
    """Every platform with enough models, by latency first, then by FRM; made once a session.

    Raises:
        NoDataError: no platform has 5 models with FLOPs.
    """
    found = tuple(_each(session.panel))
    if not found:
        raise NoDataError(
            f"no platform has {MIN_MODELS} models with FLOPs", "measure more models on one platform"
        )
    return found


def disagreements(session: Session) -> tuple[Disagreement, ...]:
    """Cases of disagreement by measure, in alphabetical order from the end."""
    platforms = shifts_from_flops(session)
    measured = sorted({one.measure for one in platforms}, reverse=True)
    by_name = {one.name: one for one in measures(session.panel)}
    return tuple(
        _summary(session, by_name[name], [one for one in platforms if one.measure == name])
        for name in measured
    )


def disagreement_table(session: Session) -> Table:
    """Models whose measured rank differs from their rank by FLOPs, by measure."""
    shown = frame_of(Disagreement, disagreements(session))
    return _about_flops(session, "measures", "FLOPs disagreement", shown)


def shifts_table(session: Session) -> Table:
    """How far the measured rank of each model is from its rank by FLOPs."""
    return _about_flops(session, "models", "Shift from the rank by FLOPs", _by_model(session))


def _about_flops(session: Session, part: str, title: str, shown: pl.DataFrame) -> Table:
    return Table(
        title=title,
        frame=shown,
        notes=(*session.panel.notes, *incomplete_notes(session.panel)),
        explanation=explained(
            f"flops/{part}",
            {
                "min_shift": MIN_SHIFT,
                "min_models": MIN_MODELS,
                "draws": DRAWS,
                "seed": session.selection.seed,
            },
        ),
    )


def _by_model(session: Session) -> pl.DataFrame:
    """How far each model's rank shifts from its rank by FLOPs, over platforms."""
    panel = session.panel
    long = pl.concat(
        pl.DataFrame(
            {
                "model": [panel.models[row] for row in one.rows],
                "measure": [one.measure] * one.rows.size,
                "shift": one.shifts,
            }
        )
        for one in shifts_from_flops(session)
    )
    shift = pl.col("shift")
    return (
        long.group_by("measure", "model")
        .agg(
            pl.len().alias("n_platforms"),
            shift.mean().alias("mean_shift"),
            shift.abs().mean().alias("mean_abs_shift"),
            shift.min().alias("min_shift"),
            shift.max().alias("max_shift"),
            (shift.abs() >= MIN_SHIFT).mean().alias("share_of_cases"),
        )
        .sort("measure", "mean_shift", "model", descending=[True, True, False])
    )


def _each(panel: Panel) -> Iterator[PlatformShifts]:
    for measure in measures(panel):
        values = measure.values
        has_both = np.isfinite(values) & (panel.flops > 0)[:, None]
        for column in range(values.shape[1]):
            rows = np.flatnonzero(has_both[:, column])
            if rows.size < MIN_MODELS:
                continue
            flops, metric = panel.flops[rows], values[rows, column]
            yield PlatformShifts(
                measure=measure.name,
                rows=rows,
                shifts=rank_shifts(flops, metric),
                chance=chance_of_shift(flops, metric),
            )


def _summary(session: Session, measure: Measure, platforms: list[PlatformShifts]) -> Disagreement:
    panel = session.panel
    flops = np.where(panel.flops > 0, panel.flops, np.nan)
    n_values = sum(one.rows.size for one in platforms)
    n_cases = sum(one.n_cases for one in platforms)
    expected = sum(one.chance.share * one.rows.size for one in platforms)
    any_by_chance = sum(one.chance.any_share for one in platforms)
    return Disagreement(
        measure=measure.name,
        n_platforms=len(platforms),
        n_values=n_values,
        cases=n_cases,
        share=n_cases / n_values,
        chance_share=expected / n_values,
        platforms_with_any=sum(one.n_cases > 0 for one in platforms) / len(platforms),
        chance_platforms_with_any=any_by_chance / len(platforms),
        decisions=share_with_interval(measure, flops, panel.keys, session.selection.seed),
    )
