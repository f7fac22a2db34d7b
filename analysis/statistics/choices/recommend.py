"""The study's decision tree, answered with the user's own figures."""

from dataclasses import dataclass

import polars as pl

from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.panel.selected_pairs import directed_pairs, sampled
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.choices.branch_answers import Answer, answers_of, make_known
from fleetrank.analysis.statistics.choices.decision_tree import TREE, Branch, Goal, advice
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
    "`transfer` with `detail=full`).",
    "Intervals: 95 % percentile bootstrap over models, from 9 models on. 'Permuted' is the mean "
    "rho of the same latencies in random order; the ceiling is the rho that the noise of "
    "repeats allows, an upper bound if all repeats come from one session (table `ceiling`). It "
    "needs two repeats of 5 models on every platform, and is not computed for more than 5,000 "
    "pairs.",
    "Tiers: platforms of different devices at equal batch, mean inside a pair of device models "
    "first.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """One branch of the tree, answered for one scope."""

    branch: Branch
    answer: Answer
    advice: str


def branches_of(goal: str) -> list[Branch]:
    """The branches of a goal by the beginning of its name; all for an empty one.

    Raises:
        AnalysisError: no goal has this name.
    """
    if branches := [branch for branch in TREE if branch.goal.startswith(goal)]:
        return branches
    raise AnalysisError(f"no goal '{goal}'", f"there are {', '.join(Goal)}")


def recommend(session: Session, goal: str = "") -> tuple[Recommendation, ...]:
    """The branches of a goal, or of all goals, answered with the figures of the selected rows.

    Args:
        session: the selected rows.
        goal: one of the five goals, or the beginning of its name.

    Raises:
        NoDataError: no row matches the selection.
        AnalysisError: no goal has this name.
    """
    branches = branches_of(goal)
    data = make_known(session)
    return tuple(
        Recommendation(
            branch=branch,
            answer=answer,
            advice=advice(branch, answer.value, answer.low, answer.high),
        )
        for branch in branches
        for answer in answers_of(branch.figure, data)
    )


def recommend_table(session: Session) -> Table:
    """One row per branch of the tree and pair of tiers.

    Settings: `goal`, one of the five goals, or the beginning of its name.
    """
    found = recommend(session, setting(session.selection, "goal", ""))
    seed = f"Seed {session.selection.seed}."
    return Table(
        title="Recommendations",
        frame=pl.DataFrame([_row(one) for one in found], schema=_SCHEMA),
        notes=(*session.panel.notes, *_sampled(session)),
        explanation=(*_MEANING, seed),
    )


def _sampled(session: Session) -> tuple[str, ...]:
    try:
        return sampled(session, len(directed_pairs(session.panel, session.selection)))
    except NoDataError:
        return ()  # with one platform


def _row(one: Recommendation) -> dict[str, object]:
    branch, answer = one.branch, one.answer
    return {
        "goal": branch.goal.value,
        "figure": branch.figure.value,
        "scope": answer.scope,
        "advice": one.advice,
        "answer": f"{answer.text}: {one.advice}.",
        "value": answer.value,
        "low": answer.low,
        "high": answer.high,
        "limit": branch.limit,
        "ceiling": answer.ceiling,
        "n_models": answer.n_models,
        "n_pairs": answer.n_pairs,
        "reason": answer.reason,
    }
