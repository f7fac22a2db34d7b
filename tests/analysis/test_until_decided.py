"""Decisions about models after each round."""

from dataclasses import replace

import numpy as np
import pytest
from daily import daily

from fleetrank.analysis.stopping_rule import StoppingRule, SweepQuestion
from fleetrank.analysis.until_decided import Decisions, answer, decide

RULE = StoppingRule(question=SweepQuestion.ORDER, margin=0.05, first=3, most=20, budget_s=60.0)
NAMES = ("a", "b", "c", "d")
LOGS = np.array([0.0, 0.5, 1.0, 1.001])
"""Of a to d; c and d are equal inside the margin."""
ACCURACY = (70.0, 60.0, 80.0, None)


def rounds(n: int, spread: float = 0.02, seed: int = 0) -> np.ndarray:
    """(4, n) logs of rounds; what the host does is common to a round."""
    random = np.random.default_rng(seed)
    host = random.normal(0, 0.5, n)
    return LOGS[:, None] + host + random.normal(0, spread, (4, n))


def decided(question: SweepQuestion, n: int, **changes: object) -> Decisions:
    return decide(rounds(n), ACCURACY, replace(RULE, question=question, **changes))


def said(question: SweepQuestion, n: int) -> str:
    return answer(decided(question, n), NAMES, rounds(n))


def test_first_the_near_pair_is_open_and_later_it_is_equal() -> None:
    early, late = decided(SweepQuestion.ORDER, 5), decided(SweepQuestion.ORDER, 20)
    assert early.asked == ([(2, 3)], 6, 5)
    assert early.open_models == {2, 3}
    more = early.more_rounds((2, 3))
    assert more is not None
    assert 2 < more < 15
    assert late.asked[0] == []
    assert late.equal[2, 3]
    assert not late.slower[2, 3]


def test_a_decision_stays_though_later_rounds_are_noisier() -> None:
    logs = rounds(6)
    logs[1, 5] += 3.0
    assert decide(logs, ACCURACY, RULE).slower[1, 0] == 1
    assert decide(logs[:, ::-1], ACCURACY, RULE).slower[1, 0] == 0


def test_a_model_that_no_longer_takes_part_keeps_its_decisions() -> None:
    logs = rounds(12)
    logs[:2, 5:] = np.nan
    assert decide(logs, ACCURACY, RULE).slower[1, 0] == 1


def test_the_question_names_the_pairs_that_matter() -> None:
    assert decided(SweepQuestion.FASTEST, 5).asked == ([], 4, 4)
    assert decided(SweepQuestion.FRONTIER, 5).asked[1] == 3, "one has no accuracy"
    assert decided(SweepQuestion.NOT_SLOWER, 5).asked[1] == 3
    frontier = replace(RULE, question=SweepQuestion.FRONTIER)
    assert decide(rounds(5), (90.0, 80.0, 70.0, 60.0), frontier).asked[0] == [], "a beats both"
    assert decide(rounds(5), (1.0, 2.0, 3.0, 4.0), frontier).asked[0] == [(2, 3)]


def test_the_answer_is_in_words() -> None:
    assert said(SweepQuestion.ORDER, 5).startswith("from fast to slow: a, b, ")
    assert said(SweepQuestion.FASTEST, 5) == "fastest: a"
    assert said(SweepQuestion.FRONTIER, 5) == "on the frontier: a, c"
    near = decide(rounds(5), (1.0, 2.0, 3.0, 4.0), replace(RULE, question=SweepQuestion.FRONTIER))
    text = answer(near, NAMES, rounds(5))
    assert text == "on the frontier: a, b, d; perhaps: c", "d is more accurate, and perhaps as fast"
    assert said(SweepQuestion.NOT_SLOWER, 20).startswith("slower: b, ")


def test_not_slower_is_asked_of_the_margin_in_one_direction() -> None:
    logs = rounds(20)[[3, 2, 0]]  # the first is the baseline: c is equal, a is faster
    found = decide(logs, (None,) * 3, replace(RULE, question=SweepQuestion.NOT_SLOWER))
    assert found.asked[0] == []
    assert found.equal[1, 0]
    assert found.equal[2, 0]


@pytest.mark.parametrize("question", daily(SweepQuestion, SweepQuestion.FRONTIER))
def test_wrong_decisions_are_rarer_than_one_in_twenty(question: SweepQuestion) -> None:
    """Eight equal models, looked at after each of 18 rounds; nothing may be told apart."""
    rule, n_wrong = replace(RULE, question=question), 0
    for seed in range(100):
        logs = np.random.default_rng(seed).normal(0, 0.2, (8, 20))
        n_wrong += bool(decide(logs, np.arange(8.0).tolist(), rule).slower.any())
    assert n_wrong <= 8, "the chance of more than 8 of 100 is 0.6 % at an error of 4 %"


def test_a_rule_is_read_back_and_other_text_is_none() -> None:
    rule = replace(RULE, baseline="net", mixes_platforms=True)
    assert StoppingRule.parse(str(rule)) == rule
    for text in (None, "", "[]", "{}", '{"question": "order"}', str(rule).replace("order", "x")):
        assert StoppingRule.parse(text) is None


def test_precisions_of_a_platform_are_compared_but_not_on_frontiers() -> None:
    keys = [f"cpu/onnx/cpu/eager/{word}/b1/t1/afree/{{}}" for word in ("fp32", "int8")]
    assert len({RULE.contest(key, "image") for key in keys}) == 1
    assert (
        len({replace(RULE, question=SweepQuestion.FRONTIER).contest(k, "image") for k in keys}) == 2
    )
    assert len({RULE.contest(keys[0], "image"), RULE.contest(keys[0], "decode@128")}) == 2
    other = keys[0].replace("onnx", "torch")
    assert RULE.contest(keys[0], "image") != RULE.contest(other, "image")
    mixed = replace(RULE, mixes_platforms=True)
    assert mixed.contest(keys[0], "image") == mixed.contest(other, "image")
