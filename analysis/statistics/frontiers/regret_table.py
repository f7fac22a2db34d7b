"""The cost on the target of choosing a model by the source's figures, as a table."""

import math
from collections.abc import Sequence

import numpy as np
import polars as pl

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.panel import Panel, components
from fleetrank.analysis.panel.selected_pairs import unlisted
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.frontiers.pair_regrets import Budgets
from fleetrank.analysis.statistics.frontiers.regret import (
    Form,
    Quantiles,
    RegretCases,
    RegretResult,
    choice_regrets,
)
from fleetrank.analysis.stored.selection import Selection, setting
from fleetrank.analysis.tables.table import Table
from fleetrank.foundation.units import BYTES_PER_MIB, NS_PER_MS

LOST, EXTRA = Form.LOST.value, Form.EXTRA.value
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

_MEMORY = "budgets_mib"
_OF_MEMORY = (
    "Memory budget: only models with a known peak memory up to it qualify, on the source by the "
    "source's figure, on the target by the target's; each budget is combined with each latency "
    "budget and each accuracy floor. over_budget_share then also counts choices that exceed the "
    "memory budget on the target, and is given at floors too; such a choice has no extra latency. "
    "The choice by FLOPs knows no memory."
)

Row = dict[str, object]


def regrets(session: Session) -> RegretResult:
    """The cost of choosing on another device; made once a session.

    Settings `budgets_ms` and `floors_percent`: numbers separated by commas; quartiles of the
    target's latencies and of the accuracies by default. `budgets_mib`: also limits the memory of
    every choice; there is none by default.

    Raises:
        NoDataError: fewer than two platforms match the selection.
    """
    return session.once(_regrets)


def _regrets(session: Session) -> RegretResult:
    latencies = _numbers(session.selection, "budgets_ms")
    budgets = Budgets(
        latency=tuple(one * NS_PER_MS for one in latencies) or None,
        accuracy=_numbers(session.selection, "floors_percent") or None,
        memory=tuple(one * BYTES_PER_MIB for one in _numbers(session.selection, _MEMORY)) or None,
    )
    return choice_regrets(session, budgets)


def regret_table(session: Session) -> Table:
    """Median, 90th percentile and worst regret from tier to tier, by source, and by pair.

    The settings are those of `regrets`.
    """
    selection = session.selection
    latencies, floors = _numbers(selection, "budgets_ms"), _numbers(selection, "floors_percent")
    limits = _numbers(selection, _MEMORY)
    found = regrets(session)
    notes = (
        *session.panel.notes,
        *(() if found.is_listed else (unlisted(found.pairs, session),)),
        *_without_accuracy(session.panel),
        *_without_memory(session.panel, limits),
    )
    explanation = (
        _stated("Latency budgets", latencies, "ms", "the common models' latencies on the target"),
        _stated("Accuracy floors", floors, "%", "the common models' accuracies"),
        *((_stated("Memory budgets", limits, "MiB", ""), _OF_MEMORY) if limits else ()),
        *_MEANING,
    )
    return Table(
        title="Regret of choosing on another device",
        frame=pl.DataFrame([_row(cases) for cases in found.cases], schema=_SCHEMA),
        notes=notes,
        explanation=explanation,
    )


def _row(cases: RegretCases) -> Row:
    reason = None
    if cases.regret is None:
        reason = "no common model with an accuracy is within the budget or reaches the floor"
    elif cases.by_flops is None:
        reason = "no FLOPs baseline: a common model has no FLOPs"
    return {
        "level": cases.level.value,
        "source": cases.source,
        "target": EVERY_TARGET if cases.target is None else cases.target,
        "form": cases.form.value,
        "n_models": cases.n_models,
        "n_pairs": cases.n_pairs,
        "n_cases": cases.n_cases,
        "n_undefined": cases.n_undefined,
        **_figures(cases.regret, ""),
        "over_budget_share": cases.over_budget_share,
        **_figures(cases.by_flops, "flops_"),
        "unlike": cases.unlike,
        "reason": reason,
    }


def _figures(found: Quantiles | None, prefix: str) -> Row:
    if found is None:
        return dict.fromkeys((f"{prefix}median", f"{prefix}p90", f"{prefix}worst"))
    return {
        f"{prefix}median": found.median,
        f"{prefix}p90": found.p90,
        f"{prefix}worst": found.worst,
    }


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


def _without_accuracy(panel: Panel) -> tuple[str, ...]:
    lacking = [panel.models[row] for row in np.flatnonzero(np.isnan(panel.accuracy))]
    return (f"Dropped, no accuracy: {', '.join(lacking)}.",) if lacking else ()


def _without_memory(panel: Panel, limits: Sequence[float]) -> tuple[str, ...]:
    """How many values are without a memory, where a budget needs it."""
    is_measured = np.isfinite(panel.latency)
    n = int((is_measured & np.isnan(components(panel)["memory"])).sum())
    if not n or not limits:
        return ()
    return (
        f"{n} of {int(is_measured.sum())} values have no peak memory and do not qualify within a "
        "memory budget.",
    )
