"""The loss on the target from choosing a model on the source, for groups of pairs."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from fleetrank.analysis.arrays.known_means import known, known_mean
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.conditions import (
    Between,
    Level,
    Pair,
    directed_pairs,
    sampled,
    tier_groups,
)
from fleetrank.analysis.panel.panel import Panel, measures
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.frontiers.pair_regrets import (
    Budgets,
    Positions,
    Regrets,
    pair_regrets,
)
from fleetrank.analysis.stored.selection import Selection, setting
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.foundation.units import NS_PER_MS

EVERY_TARGET = "every target"
_LIMITS = ("budgets_ms", "floors_percent")


class RegretForm(StrEnum):
    """What a choice by the source can cost on the target."""

    LOST = "accuracy points lost at a latency budget"
    EXTRA = "per cent extra latency at an accuracy floor"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegretCases(Between):
    """Regret over the cases of some pairs; a case is one budget (or floor) of one pair.

    Attributes:
        level: `TIER` or `SOURCE`.
        source, target: names of tiers, or of a platform and `EVERY_TARGET`.
        n_models: fewest common models of a pair.
        median, p90, worst: over the known cases, in the unit of the form; `None` without any.
        over_budget_share: share of the known cases in which the first choice exceeds a budget on
            the target; `None` at accuracy floors.
        flops_median, flops_p90, flops_worst: of choosing by FLOPs; `None` if a common model has no
            FLOPs.
    """

    form: RegretForm
    n_models: int
    n_pairs: int
    n_cases: int
    n_undefined: int
    median: float | None
    p90: float | None
    worst: float | None
    over_budget_share: float | None
    flops_median: float | None
    flops_p90: float | None
    flops_worst: float | None
    reason: str | None


def regret_table(session: Session) -> Table:
    """Median, 90th percentile and worst regret from tier to tier, and of each source.

    Settings `budgets_ms` and `floors_percent`: numbers separated by commas; quartiles of the
    target's latencies and of the accuracies by default.

    Raises:
        NoDataError: fewer than two platforms match the selection.
    """
    latencies, floors = (_numbers(session.selection, name) for name in _LIMITS)
    budgets = Budgets(
        latency=tuple(one * NS_PER_MS for one in latencies) or None, accuracy=floors or None
    )
    panel = session.panel
    pairs = directed_pairs(panel, session.selection)
    mine, by_flops = (
        pair_regrets(panel.accuracy, measures(panel)[0].latency, pairs, budgets, flops)
        for flops in (None, panel.flops)
    )
    lacking = [panel.models[row] for row in np.flatnonzero(np.isnan(panel.accuracy))]
    return Table.of(
        RegretCases,
        [one for group in _groups(panel, pairs) for one in _cases(mine, by_flops, *group)],
        title="Regret of choosing on another device",
        notes=(
            *panel.notes,
            *sampled(session, len(pairs)),
            *((f"Dropped, no accuracy: {', '.join(lacking)}.",) if lacking else ()),
        ),
        explanation=(
            _stated(
                "Latency budgets", latencies, "ms", "the common models' latencies on the target"
            ),
            _stated("Accuracy floors", floors, "%", "the common models' accuracies"),
            *explained("frontier/regret"),
        ),
    )


def _groups(panel: Panel, pairs: Sequence[Pair]) -> Iterator[tuple[Between, Positions]]:
    """What has one figure together, and the positions of its pairs in all pairs."""
    position = {pair: at for at, pair in enumerate(pairs)}
    for tiers in tier_groups(panel, pairs, is_directed=True):
        between = Between(level=Level.TIER, source=tiers.source, target=tiers.target)
        yield between, np.array([position[pair] for pair in tiers.pairs])
    by_source: dict[int, list[int]] = defaultdict(list)
    for number, (i, _) in enumerate(pairs):
        by_source[i].append(number)
    for i, mine in by_source.items():
        between = Between(level=Level.SOURCE, source=panel.keys[i], target=EVERY_TARGET)
        yield between, np.array(mine)


def _cases(
    mine: Regrets, by_flops: Regrets, between: Between, at: Positions
) -> Iterator[RegretCases]:
    no_budget = np.full(1, np.nan)
    for form, cases, flops_cases, over in (
        (RegretForm.LOST, mine.lost[:, at], by_flops.lost[:, at], mine.is_over[:, at]),
        (RegretForm.EXTRA, 100 * mine.extra[:, at], 100 * by_flops.extra[:, at], no_budget),
    ):
        is_known = np.isfinite(cases)
        median, p90, worst = _quantiles(cases[is_known])
        flops = _quantiles(flops_cases[np.isfinite(flops_cases)])
        reason = None
        if median is None:
            reason = "no common model with an accuracy is within the budget or reaches the floor"
        elif flops[0] is None:
            reason = "no FLOPs baseline: a common model has no FLOPs"
        yield RegretCases(
            level=between.level,
            source=between.source,
            target=between.target,
            form=form,
            n_models=int(mine.n_models[at].min()),
            n_pairs=at.size,
            n_cases=int(is_known.sum()),
            n_undefined=int((~is_known).sum()),
            median=median,
            p90=p90,
            worst=worst,
            over_budget_share=known(known_mean(over.ravel(), 0)),
            flops_median=flops[0],
            flops_p90=flops[1],
            flops_worst=flops[2],
            reason=reason,
        )


def _quantiles(cases: Floats) -> tuple[float | None, float | None, float | None]:
    """Median, 90th percentile and highest regret."""
    if not cases.size:
        return None, None, None
    median, p90, worst = np.quantile(cases, (0.5, 0.9, 1)).tolist()
    return median, p90, worst


def _numbers(selection: Selection, name: str) -> tuple[float, ...]:
    """The user's numbers; empty without any."""
    text = setting(selection, name, "")
    try:
        numbers = tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError:
        numbers = (math.nan,)
    if all(math.isfinite(one) and one > 0 for one in numbers):
        return numbers
    raise AnalysisError(
        f"{name}={text} must be numbers above 0", f"such as `set {name}=10` or `set {name}=10,50`"
    )


def _stated(what: str, given: Sequence[float], unit: str, whose: str) -> str:
    if given:
        return f"{what}: {', '.join(f'{one:g}' for one in given)} {unit}, as given."
    return f"{what}: the quartiles (25, 50, 75 %) of {whose}."
