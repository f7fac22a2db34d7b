"""The cost on the target of choosing a model by the source's figures."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.pair_groups import tier_groups, unlike_facts
from fleetrank.analysis.panel.pairs import Pair
from fleetrank.analysis.panel.panel import Panel, measures
from fleetrank.analysis.panel.selected_pairs import MAX_LISTED_PAIRS, directed_pairs, unlisted
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.frontiers.regret import Budgets, Regrets, pair_regrets
from fleetrank.analysis.stored.columns import NS_PER_MS
from fleetrank.analysis.stored.selection import Selection, setting
from fleetrank.analysis.tables.table import Table

LOST = "accuracy points lost at a latency budget"
EXTRA = "per cent extra latency at an accuracy floor"
EVERY_TARGET = "every target"

_SCHEMA = {
    "level": pl.String,
    "source": pl.String,
    "target": pl.String,
    "form": pl.String,
    "n_models": pl.Int64,
    "n_pairs": pl.Int64,
    "n_cases": pl.Int64,
    "n_undefined": pl.Int64,
    "median": pl.Float64,
    "p90": pl.Float64,
    "worst": pl.Float64,
    "over_budget_share": pl.Float64,
    "flops_median": pl.Float64,
    "flops_p90": pl.Float64,
    "flops_worst": pl.Float64,
    "unlike": pl.String,
    "reason": pl.String,
}
_MEANING = (
    "Latency budget: if k models are within the budget on the target, the k fastest models on "
    "the source are selected. lost: best accuracy within the budget on the target minus the "
    "best accuracy of the selected models within it. over_budget_share: share of budgets at "
    "which the most accurate selected model exceeds the budget, so that a second measurement is "
    "needed. Undefined if no model, or no selected model, is within the budget.",
    "Accuracy floor: of the models with enough accuracy, the fastest on the source is compared "
    "with the fastest on the target.",
    "A case is one budget (or floor) of one pair of platforms; median, 90th percentile and "
    "worst are over cases; every platform has the same weight. flops_*: the choice by FLOPs, "
    "which needs no device.",
    "Tiers: platforms of different devices at equal batch.",
    "No interval: the cases of one pair use the same models, and a worst case is an extreme.",
    "Accuracy is as published for the model's card; weights measured here may be others.",
)

Row = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """Models in common (n_pairs,) and regrets by the source and by FLOPs."""

    n_models: npt.NDArray[np.int64]
    by_source: Regrets
    by_flops: Regrets


def regret_table(session: Session) -> Table:
    """Median, 90th percentile and worst regret from tier to tier, by source, and by pair.

    Settings `budgets_ms` and `floors_percent`: numbers separated by commas; quartiles of the
    target's latencies and of the accuracies by default.
    """
    selection = session.selection
    latencies, floors = _numbers(selection, "budgets_ms"), _numbers(selection, "floors_percent")
    panel = session.panel
    pairs = directed_pairs(panel, selection)
    latency = measures(panel)[0].latency
    budgets = Budgets(
        latency=tuple(one * NS_PER_MS for one in latencies) or None, accuracy=floors or None
    )
    known = np.isfinite(latency) & np.isfinite(panel.accuracy)[:, None]
    sides = np.array(pairs)
    counts = known.T.astype(np.int64) @ known
    found = _Found(
        n_models=counts[sides[:, 0], sides[:, 1]],
        by_source=pair_regrets(panel.accuracy, latency, pairs, budgets),
        by_flops=pair_regrets(panel.accuracy, latency, pairs, budgets, flops=panel.flops),
    )
    is_listed = len(pairs) <= MAX_LISTED_PAIRS
    rows = [
        facts | row
        for facts, at in _levels(panel, pairs, is_listed=is_listed)
        for row in _rows(found, at)
    ]
    notes = (
        *panel.notes,
        *(() if is_listed else (unlisted(pairs),)),
        *_without_accuracy(panel),
        _stated("Latency budgets", latencies, "ms", "the common models' latencies on the target"),
        _stated("Accuracy floors", floors, "%", "the common models' accuracies"),
        *_MEANING,
    )
    return Table(
        title="Regret of choosing on another device",
        frame=pl.DataFrame(rows, schema=_SCHEMA),
        notes=notes,
    )


def _numbers(selection: Selection, name: str) -> tuple[float, ...]:
    """`None` if the user gave no budgets."""
    text = setting(selection, name, "")
    try:
        numbers = tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError:
        numbers = (math.nan,)
    if all(math.isfinite(one) and one > 0 for one in numbers):
        return numbers
    raise AnalysisError(
        f"{name}={text} must be numbers above 0", f"such as --set {name}=10 or --set {name}=10,50"
    )


def _levels(
    panel: Panel, pairs: Sequence[Pair], *, is_listed: bool
) -> Iterator[tuple[Row, npt.NDArray[np.int64]]]:
    """The meaning of each row, and the positions of its pairs."""
    position = {pair: at for at, pair in enumerate(pairs)}
    for group in tier_groups(panel, pairs, is_directed=True):
        facts: Row = {"level": "tier", "source": group.source, "target": group.target}
        yield facts, np.array([position[pair] for pair in group.pairs])
    by_source: dict[int, list[int]] = defaultdict(list)
    for at, (i, _) in enumerate(pairs):
        by_source[i].append(at)
    for i, mine in by_source.items():
        facts = {"level": "source", "source": panel.keys[i], "target": EVERY_TARGET}
        yield facts, np.array(mine)
    platforms = panel.platforms.to_dicts()
    for at, (i, j) in enumerate(pairs if is_listed else ()):
        facts = {"level": "pair", "source": panel.keys[i], "target": panel.keys[j]}
        facts["unlike"] = unlike_facts(platforms[i], platforms[j])
        yield facts, np.array([at])


def _rows(found: _Found, at: npt.NDArray[np.int64]) -> Iterator[Row]:
    behind: Row = {"n_models": int(found.n_models[at].min()), "n_pairs": at.size}
    mine, flops = found.by_source, found.by_flops
    over = mine.is_over[:, at]
    share = float(np.nanmean(over)) if np.isfinite(over).any() else None
    lost = _summary(mine.lost[:, at], flops.lost[:, at])
    yield behind | {"form": LOST, "over_budget_share": share} | lost
    yield behind | {"form": EXTRA} | _summary(100 * mine.extra[:, at], 100 * flops.extra[:, at])


def _summary(cases: Floats, by_flops: Floats) -> Row:
    known = np.isfinite(cases)
    row: Row = {"n_cases": int(known.sum()), "n_undefined": int((~known).sum())}
    row |= _quantiles(cases[known], "") | _quantiles(by_flops[np.isfinite(by_flops)], "flops_")
    if not known.any():
        row["reason"] = "no common model with an accuracy is within the budget or reaches the floor"
    elif row["flops_median"] is None:
        row["reason"] = "no FLOPs baseline: a common model has no FLOPs"
    return row


def _quantiles(cases: Floats, prefix: str) -> Row:
    names = (f"{prefix}median", f"{prefix}p90", f"{prefix}worst")
    figures = np.quantile(cases, (0.5, 0.9, 1)).tolist() if cases.size else (None,) * 3
    return dict(zip(names, figures, strict=True))


def _stated(what: str, given: Sequence[float], unit: str, whose: str) -> str:
    if given:
        return f"{what}: {', '.join(f'{one:g}' for one in given)} {unit}, as given."
    return f"{what}: the quartiles (25, 50, 75 %) of {whose}."


def _without_accuracy(panel: Panel) -> tuple[str, ...]:
    lacking = [panel.models[row] for row in np.flatnonzero(np.isnan(panel.accuracy))]
    return (f"Dropped, no accuracy: {', '.join(lacking)}.",) if lacking else ()
