"""Which decisions about models are taken, and which need further rounds.

The models of a platform take turns in rounds. After each round, the differences of the logarithms
of every two models are looked at, with a confidence sequence (`arrays.confidence_sequence`): its
intervals hold at all looks together, so that a sweep may stop at any of them. A pair is decided
when its interval excludes equality or lies inside the margin, and stays so.

`alpha` is the probability of any wrong order on one platform: each of its pairs gets its share, by
Bonferroni. To find the fastest model only the pairs of that model can go wrong, so there are as
many shares as other models (Even-Dar et al. 2006: elimination).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays import confidence_sequence
from fleetrank.analysis.arrays.confidence_sequence import MIN_VALUES, Reach, looks_needed
from fleetrank.analysis.arrays.interval import shrunk
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.arrays.two_samples import ALPHA
from fleetrank.analysis.stopping_rule import Question, StoppingRule

Mask = npt.NDArray[np.bool_]
_Pairs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """What the rounds so far have decided on one platform.

    Attributes:
        open_pairs: of models, by position: their order would decide something.
        n: decisions that the question asks for: pairs of models, or models.
        n_decided: those that were taken; the others are open.
        more_rounds: that decide each open pair if its figures stay as they are; `None` if they are
            too many.
        slower: [i, j] is 1 if i was shown to be slower than j, -1 if faster, 0 if neither.
        equal: [i, j]: their ratio was shown to be inside the margin.
        accuracy: of each model, NaN if it is not known.
    """

    open_pairs: tuple[tuple[int, int], ...]
    n: int
    n_decided: int
    more_rounds: tuple[int | None, ...]
    slower: npt.NDArray[np.int8]
    equal: Mask
    accuracy: Floats

    def is_on_frontier(self, model: int) -> bool:
        """Whether no model that is as accurate was shown to be faster."""
        is_rival = self.accuracy >= self.accuracy[model]
        return bool(
            np.isfinite(self.accuracy[model]) and not (is_rival & (self.slower[model] == 1)).any()
        )

    @property
    def open_models(self) -> frozenset[int]:
        """The models that take part in an open decision."""
        return frozenset(model for pair in self.open_pairs for model in pair)


_Asked = tuple[list[tuple[int, int]], int, int]
"""The open pairs, the number of decisions, and how many of them are taken."""


@dataclass(slots=True)
class _State:
    """What is known of every two models; of one platform, updated at each look."""

    rule: StoppingRule
    accuracy: Floats
    reach: Reach
    slower: npt.NDArray[np.int8] = field(init=False)
    equal: Mask = field(init=False)
    seen: dict[tuple[int, int], tuple[float, float, float, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = self.accuracy.size
        self.slower, self.equal = np.zeros((n, n), dtype=np.int8), np.zeros((n, n), dtype=np.bool_)

    def look(self, logs: Floats, pairs: _Pairs, n_tests: int) -> None:
        """Takes the decisions about some open pairs (n_pairs, 2) that (n_models, n) logs allow."""
        between = logs[pairs[:, 0]] - logs[pairs[:, 1]]
        n = np.isfinite(between).sum(axis=1)
        between, pairs, n = (one[n >= MIN_VALUES] for one in (between, pairs, n))
        if not n.size:
            return
        mean = np.nanmean(between, axis=1)
        squares = np.nansum((between - mean[:, None]) ** 2, axis=1)
        variance, degrees = shrunk(squares, n - 1.0, np.ones(n.size, dtype=np.bool_))
        # Pairs that share a model are not as many sources of what is usual as there are pairs.
        independent = max(len(np.unique(pairs)) - 1, 1) * (n - 1.0)
        degrees = np.minimum(degrees, independent)
        alpha = ALPHA / n_tests
        width = self.reach(variance, n, degrees, alpha)
        bound = self.rule.bound
        is_same = np.abs(mean) + width < bound
        is_order = np.abs(mean) > width
        if self.rule.question is Question.NOT_SLOWER:
            # The second of each pair is the model that the others are compared with.
            is_same, is_order = mean + width < bound, mean - width > bound
        for at, (i, j) in enumerate(pairs.tolist()):
            if is_order[at] and not is_same[at]:
                self.slower[i, j] = 1 if mean[at] > 0 else -1
                self.slower[j, i] = -self.slower[i, j]
            elif is_same[at]:
                self.equal[i, j] = self.equal[j, i] = True
            else:
                self.seen[i, j] = (
                    float(mean[at]), float(variance[at]), float(degrees[at]), int(n[at])
                )  # fmt: skip

    def asked(self) -> _Asked:
        """What the question asks for, with what is known now."""
        return _ASKED[self.rule.question](self)

    def decisions(self, n_tests: int) -> Decisions:
        """What is decided, and what would decide the rest."""
        open_pairs, n, n_decided = self.asked()
        return Decisions(
            open_pairs=tuple(open_pairs),
            n=n,
            n_decided=n_decided,
            more_rounds=tuple(self._more(pair, ALPHA / n_tests) for pair in open_pairs),
            slower=self.slower,
            equal=self.equal,
            accuracy=self.accuracy,
        )

    def _more(self, pair: tuple[int, int], alpha: float) -> int | None:
        if pair not in self.seen:
            return None
        mean, variance, degrees, n = self.seen[pair]
        # Inside the margin in both directions, or in the one that is asked for.
        size = mean if self.rule.question is Question.NOT_SLOWER else abs(mean)
        bound = self.rule.bound
        apart = size - bound if self.rule.question is Question.NOT_SLOWER else size
        return looks_needed(max(apart, bound - size), (variance, degrees), n, alpha)

    def is_open(self, i: int, j: int) -> bool:
        """Whether nothing is shown of two models."""
        return not (self.slower[i, j] or self.equal[i, j])


def _order(state: _State) -> _Asked:
    n = state.accuracy.size
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    left = [pair for pair in pairs if state.is_open(*pair)]
    return left, len(pairs), len(pairs) - len(left)


def _fastest(state: _State) -> _Asked:
    """A model is left out when another is faster; the others are equal, or open."""
    n = state.accuracy.size
    left = [i for i in range(n) if not (state.slower[i] == 1).any()]
    pairs = [(i, j) for i in left for j in left if i < j and state.is_open(i, j)]
    n_open = len({model for pair in pairs for model in pair})
    return pairs, n, n - n_open


def _frontier(state: _State) -> _Asked:
    """A model is on the frontier if none that is as accurate is faster."""
    known = np.flatnonzero(np.isfinite(state.accuracy)).tolist()
    pairs, n_open = list[tuple[int, int]](), 0
    for i in known:
        rivals = [j for j in known if j != i and state.accuracy[j] >= state.accuracy[i]]
        if any(state.slower[i, j] == 1 for j in rivals):
            continue
        # A pair that is open may still leave i out.
        mine = [(min(i, j), max(i, j)) for j in rivals if state.is_open(i, j)]
        pairs += mine
        n_open += bool(mine)
    return sorted(set(pairs)), len(known), len(known) - n_open


def _not_slower(state: _State) -> _Asked:
    others = range(1, state.accuracy.size)
    left = [(i, 0) for i in others if state.is_open(i, 0)]
    return left, len(others), len(others) - len(left)


_ASKED = {
    Question.ORDER: _order,
    Question.FASTEST: _fastest,
    Question.FRONTIER: _frontier,
    Question.NOT_SLOWER: _not_slower,
}


def decide(
    logs: Floats,
    accuracy: Sequence[float | None],
    rule: StoppingRule,
    *,
    reach: Reach = confidence_sequence.reach,
) -> Decisions:
    """The decisions that rounds have led to, looked at after each one as during the sweep.

    Args:
        logs: of latencies, (n_models, n_rounds), NaN where a model was not measured. All models
            have taken part in the first rounds; one that was not measured twice is left out.
        accuracy: of each model; `None` if it is not known.
        rule: of the sweep.
        reach: another interval, for a design that is looked at once.
    """
    state = _State(rule, np.array([np.nan if one is None else one for one in accuracy]), reach)
    n_models, n_rounds = logs.shape
    n_tests = tests_of(rule.question, n_models)
    for seen in range(min(rule.first, n_rounds), n_rounds + 1):
        pairs, _, _ = state.asked()
        if pairs:
            state.look(logs[:, :seen], np.array(pairs), n_tests)
    return state.decisions(n_tests)


def tests_of(question: Question, n_models: int) -> int:
    """Pairs that can go wrong together."""
    if question in {Question.FASTEST, Question.NOT_SLOWER}:
        return max(n_models - 1, 1)
    return max(n_models * (n_models - 1) // 2, 1)


def answer(found: Decisions, names: Sequence[str], logs: Floats, rule: StoppingRule) -> str:
    """What is known now, in words.

    Args:
        found: of `decide`.
        names: of the models.
        logs: as there.
        rule: as there.
    """
    by_speed = np.argsort(np.nanmean(logs, axis=1), kind="stable").tolist()
    beaten = (found.slower == 1).any(axis=1)
    match rule.question:
        case Question.ORDER:
            return f"from fast to slow: {', '.join(names[i] for i in by_speed)}"
        case Question.FASTEST:
            return f"fastest: {' or '.join(names[i] for i in by_speed if not beaten[i])}"
        case Question.FRONTIER:
            on = [names[i] for i in by_speed if found.is_on_frontier(i)]
            return f"on the frontier: {', '.join(on) or 'none has a known accuracy'}"
        case Question.NOT_SLOWER:
            groups = (
                (f"not slower than {names[0]}", [i for i in by_speed if found.equal[i, 0]]),
                ("slower", [i for i in by_speed if found.slower[i, 0] == 1]),
            )
            said = [f"{what}: {', '.join(names[i] for i in of)}" for what, of in groups if of]
            return "; ".join(said) or "nothing is shown"
