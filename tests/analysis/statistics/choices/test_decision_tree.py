"""The tree is complete, and its advice follows the figure and its interval."""

import pytest

from fleetrank.analysis.statistics.choices.decision_tree import TREE, Branch, Figure, Goal, advice

BRANCH = Branch(
    goal=Goal.PAPER, figure=Figure.CNN_RHO, limit=0.9, if_met="transfer", otherwise="measure"
)


def test_every_goal_and_every_figure_has_a_branch() -> None:
    assert {branch.goal for branch in TREE} == set(Goal)
    assert {branch.figure for branch in TREE} == set(Figure)


@pytest.mark.parametrize(
    ("value", "low", "high", "said"),
    [
        (0.95, 0.92, 0.99, "transfer"),
        (0.5, 0.2, 0.8, "measure"),
        (0.95, 0.8, 0.99, "transfer (undecided: 0.9 lies inside the interval)"),
        (0.85, 0.8, 0.95, "measure (undecided: 0.9 lies inside the interval)"),
        (0.95, None, None, "transfer (without an interval: weak evidence)"),
        (None, None, None, "measure"),
    ],
)
def test_advice_follows_the_figure(value, low, high, said: str) -> None:
    assert advice(BRANCH, value, low, high) == said


def test_a_small_error_meets_its_limit() -> None:
    branch = next(one for one in TREE if one.is_error)
    assert advice(branch, 0.05, 0.03, 0.07) == branch.if_met
    assert advice(branch, 0.2, 0.15, 0.3) == branch.otherwise
