"""The study's decision tree, answered with the user's own figures."""

from dataclasses import replace

from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.panel.conditions import directed_pairs, sampled
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.choices.branch_answers import (
    BranchAnswer,
    answers_of,
    make_known,
)
from fleetrank.analysis.statistics.choices.decision_tree import TREE, Branch, Goal, advice
from fleetrank.analysis.stored.selection import setting
from fleetrank.analysis.tables.table import Table, explained


def branches_of(goal: str) -> list[Branch]:
    """The branches of a goal by the beginning of its name; all for an empty one.

    Raises:
        AnalysisError: no goal has this name.
    """
    if branches := [branch for branch in TREE if branch.goal.startswith(goal)]:
        return branches
    raise AnalysisError(f"no goal '{goal}'", f"there are {', '.join(Goal)}")


def recommend(session: Session, goal: str = "") -> tuple[BranchAnswer, ...]:
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
        _advised(branch, answer)
        for branch in branches
        for answer in answers_of(branch.figure, data)
    )


def _advised(branch: Branch, found: BranchAnswer) -> BranchAnswer:
    said = advice(branch, found.value, found.low, found.high)
    return replace(
        found,
        goal=branch.goal,
        figure=branch.figure,
        limit=branch.limit,
        advice=said,
        answer=f"{found.answer}: {said}.",
    )


def recommend_table(session: Session) -> Table:
    """One row per branch of the tree and pair of tiers.

    Settings: `goal`, one of the five goals, or the beginning of its name.
    """
    found = recommend(session, setting(session.selection, "goal", ""))
    try:
        drawn = sampled(session, len(directed_pairs(session.panel, session.selection)))
    except NoDataError:
        drawn = ()  # with one platform
    return Table.of(
        BranchAnswer,
        found,
        title="Recommendations",
        notes=(*session.panel.notes, *drawn),
        explanation=explained("choose/goal", {"seed": session.selection.seed}),
    )
