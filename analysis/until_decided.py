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
from fleetrank.analysis.stopping_rule import StoppingRule, SweepQuestion

Mask = npt.NDArray[np.bool_]
Pair = tuple[int, int]
"""Two models, by position."""


@dataclass(slots=True)
class Decisions:
    """What the rounds so far have decided on one platform; each look changes it.

    Attributes:
        rule: of the sweep.
        accuracy: of each model, NaN if it is not known.
        reach: half-width of intervals.
        slower: [i, j] is 1 if i was shown to be slower than j, -1 if faster, 0 if neither.
        equal: [i, j]: their ratio was shown to be inside the margin.
    """

    rule: StoppingRule
    accuracy: Floats
    reach: Reach
    slower: npt.NDArray[np.int8] = field(init=False)
    equal: Mask = field(init=False)
    _seen: dict[Pair, tuple[float, tuple[float, float], int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = self.accuracy.size
        self.slower, self.equal = np.zeros((n, n), dtype=np.int8), np.zeros((n, n), dtype=np.bool_)

    @property
    def asked(self) -> tuple[list[Pair], int, int]:
        """The open pairs whose order would decide something, the decisions, and those taken."""
        return _ASKED[self.rule.question](self)

    @property
    def open_models(self) -> frozenset[int]:
        """The models that take part in an open decision."""
        return frozenset(model for pair in self.asked[0] for model in pair)

    @property
    def alpha(self) -> float:
        """Of each pair: its share among those that can go wrong together."""
        n = self.accuracy.size
        is_of_one = self.rule.question in {SweepQuestion.FASTEST, SweepQuestion.NOT_SLOWER}
        return ALPHA / max(n - 1 if is_of_one else n * (n - 1) // 2, 1)

    def more_rounds(self, pair: Pair) -> int | None:
        """The rounds that decide an open pair if its figures stay; `None` if too many, or unknown.

        Too many are more than a thousand.
        """
        return looks_needed(*self._seen[pair], self.alpha) if pair in self._seen else None

    def is_open(self, i: int, j: int) -> bool:
        """Whether nothing is shown of two models."""
        return not (self.slower[i, j] or self.equal[i, j])

    def is_on_frontier(self, model: int) -> bool:
        """Whether no model that is as accurate was shown to be faster."""
        is_rival = self.accuracy >= self.accuracy[model]
        return bool(
            np.isfinite(self.accuracy[model]) and not (is_rival & (self.slower[model] == 1)).any()
        )

    def look(self, logs: Floats) -> None:
        """Takes the decisions about open pairs that (n_models, n) logs allow."""
        pairs = np.array(self.asked[0], dtype=np.int64).reshape(-1, 2)
        between = logs[pairs[:, 0]] - logs[pairs[:, 1]]
        n = np.isfinite(between).sum(axis=1)
        between, pairs, n = (one[n >= MIN_VALUES] for one in (between, pairs, n))
        if not n.size:
            return
        mean = np.nanmean(between, axis=1)
        squares = np.nansum((between - mean[:, None]) ** 2, axis=1)
        variance, degrees = shrunk(squares, n - 1.0, np.ones(n.size, dtype=np.bool_))
        # Pairs that share a model are not as many sources of what is usual as there are pairs.
        degrees = np.minimum(degrees, max(len(np.unique(pairs)) - 1, 1) * (n - 1.0))
        width, bound = self.reach(variance, n, degrees, self.alpha), self.rule.bound
        apart, inside = np.abs(mean), bound - np.abs(mean)
        if self.rule.question is SweepQuestion.NOT_SLOWER:
            # Each pair asks whether its first model is slower than its second by the margin.
            apart, inside = mean - bound, bound - mean
        for at, (i, j) in enumerate(pairs.tolist()):
            if inside[at] > width[at]:
                self.equal[i, j] = self.equal[j, i] = True
            elif apart[at] > width[at]:
                self.slower[i, j] = 1 if mean[at] > 0 else -1
                self.slower[j, i] = -self.slower[i, j]
            else:
                spread = float(variance[at]), float(degrees[at])
                self._seen[i, j] = max(apart[at], inside[at]), spread, int(n[at])


def _order(state: Decisions) -> tuple[list[Pair], int, int]:
    n = state.accuracy.size
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    left = [pair for pair in pairs if state.is_open(*pair)]
    return left, len(pairs), len(pairs) - len(left)


def _fastest(state: Decisions) -> tuple[list[Pair], int, int]:
    """A model is left out when another is faster; the others are equal, or open."""
    n = state.accuracy.size
    left = [i for i in range(n) if not (state.slower[i] == 1).any()]
    pairs = [(i, j) for i in left for j in left if i < j and state.is_open(i, j)]
    n_open = len({model for pair in pairs for model in pair})
    return pairs, n, n - n_open


def _frontier(state: Decisions) -> tuple[list[Pair], int, int]:
    """A model is on the frontier if none that is as accurate is faster."""
    known = np.flatnonzero(np.isfinite(state.accuracy)).tolist()
    pairs, n_open = list[Pair](), 0
    for i in known:
        rivals = [j for j in known if j != i and state.accuracy[j] >= state.accuracy[i]]
        if any(state.slower[i, j] == 1 for j in rivals):
            continue
        # A pair that is open may still leave i out.
        mine = [(min(i, j), max(i, j)) for j in rivals if state.is_open(i, j)]
        pairs += mine
        n_open += bool(mine)
    return sorted(set(pairs)), len(known), len(known) - n_open


def _not_slower(state: Decisions) -> tuple[list[Pair], int, int]:
    others = range(1, state.accuracy.size)
    left = [(i, 0) for i in others if state.is_open(i, 0)]
    return left, len(others), len(others) - len(left)


_ASKED = {
    SweepQuestion.ORDER: _order,
    SweepQuestion.FASTEST: _fastest,
    SweepQuestion.FRONTIER: _frontier,
    SweepQuestion.NOT_SLOWER: _not_slower,
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
    found = Decisions(rule, np.array([np.nan if one is None else one for one in accuracy]), reach)
    n_rounds = logs.shape[1]
    for seen in range(min(rule.first, n_rounds), n_rounds + 1):
        found.look(logs[:, :seen])
    return found


def answer(found: Decisions, names: Sequence[str], logs: Floats) -> str:
    """What is known now, in words.

    Args:
        found: of `decide`.
        names: of the models.
        logs: as there.
    """
    by_speed = np.argsort(np.nanmean(logs, axis=1), kind="stable").tolist()
    beaten = (found.slower == 1).any(axis=1)
    question = found.rule.question
    if question is SweepQuestion.ORDER:
        return f"from fast to slow: {', '.join(names[i] for i in by_speed)}"
    if question is SweepQuestion.FASTEST:
        return f"fastest: {' or '.join(names[i] for i in by_speed if not beaten[i])}"
    if question is SweepQuestion.FRONTIER:
        on = [i for i in by_speed if found.is_on_frontier(i)]
        sides = [(i, j) for pair in found.asked[0] for i, j in (pair, pair[::-1])]
        is_open = {i for i, j in sides if found.accuracy[j] >= found.accuracy[i]}
        groups = (
            ("on the frontier", [i for i in on if i not in is_open]),
            ("perhaps", [i for i in on if i in is_open]),
        )
    else:
        groups = (
            (f"not slower than {names[0]}", [i for i in by_speed if found.equal[i, 0]]),
            ("slower", [i for i in by_speed if found.slower[i, 0] == 1]),
        )
    said = [f"{what}: {', '.join(names[i] for i in of)}" for what, of in groups if of]
    return "; ".join(said) or "nothing is shown"
