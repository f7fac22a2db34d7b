"""The study's decision tree, answered with the user's own figures."""

import polars as pl

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.choices.decision_tree import TREE, Branch, Goal, advice
from fleetrank.analysis.statistics.choices.recommend_evidence import (
    Evidence,
    evidence_of,
    make_known,
)
from fleetrank.analysis.stored.selection import setting
from fleetrank.analysis.tables.table import Table

_SCHEMA = {
    "goal": pl.String,
    "figure": pl.String,
    "scope": pl.String,
    "advice": pl.String,
    "answer": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "limit": pl.Float64,
    "ceiling": pl.Float64,
    "n_models": pl.Int64,
    "n_pairs": pl.Int64,
    "reason": pl.String,
}
_MEANING = (
    "The decision tree is the study's Figure 5; the figures come from this selection. Decisions "
    "use latency, not FRM, because FRM can correlate even if latency does not transfer (table "
    "`decomposition`).",
    "Intervals: 95 % percentile bootstrap over models, from 9 models on. 'Permuted' is the mean "
    "rho of the same latencies in random order; the ceiling is the rho that the noise of "
    "repeats allows, an upper bound if all repeats come from one session (table `ceiling`). It "
    "needs two repeats of 5 models on every platform, and is not computed for more than 5,000 "
    "pairs.",
    "Tiers: platforms of different devices at equal batch, mean inside a pair of device models "
    "first.",
)


def recommend_table(session: Session) -> Table:
    """One row per branch of the tree and pair of tiers.

    Settings: `goal`, one of the five goals, or the beginning of its name.
    """
    selection = session.selection
    branches = _branches(setting(selection, "goal", ""))
    data = make_known(session)
    rows = [
        _row(branch, found) for branch in branches for found in evidence_of(branch.figure, data)
    ]
    seed = f"Seed {selection.seed}."
    return Table(
        title="Recommendations",
        frame=pl.DataFrame(rows, schema=_SCHEMA),
        notes=(*data.panel.notes, *_MEANING, seed),
    )


def _branches(goal: str) -> list[Branch]:
    chosen = [branch for branch in TREE if branch.goal.startswith(goal)]
    if not chosen:
        raise AnalysisError(f"no goal '{goal}'", f"there are {', '.join(Goal)}")
    return chosen


def _row(branch: Branch, found: Evidence) -> dict[str, object]:
    said = advice(branch, found.value, found.low, found.high)
    return {
        "goal": branch.goal.value,
        "figure": branch.figure.value,
        "scope": found.scope,
        "advice": said,
        "answer": f"{found.text}: {said}.",
        "value": found.value,
        "low": found.low,
        "high": found.high,
        "limit": branch.limit,
        "ceiling": found.ceiling,
        "n_models": found.n_models,
        "n_pairs": found.n_pairs,
        "reason": found.reason,
    }
