"""Looks at the rounds of a plan that is measured until decided: who takes part in the next one."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from fleetrank.analysis.arrays.confidence_sequence import MIN_VALUES
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.stopping_rule import StoppingRule, SweepQuestion
from fleetrank.orchestrator.dispatch.decide.lane import RepeatKey
from fleetrank.orchestrator.identity import Cell, contest_of
from fleetrank.orchestrator.progress_events import DecisionsMade, OpenPair


class RoundLatencies(Protocol):
    """What the rounds before measured."""

    @property
    def n_ok(self) -> int:
        """Measured repeats."""
        ...

    def latency_ns(self, key: RepeatKey) -> float:
        """The latency of a repeat; NaN if it has none."""
        ...


class Looks:
    """Which cells are measured in a further round, from the latencies of the rounds before.

    It sees the stored latencies only, so that a resumed sweep goes on where it was: a look at a
    round sees the rounds before it.
    """

    def __init__(
        self,
        rule: StoppingRule,
        tally: RoundLatencies,
        *,
        now_s: float,
        spent_s: float,
    ) -> None:
        """Begins to measure.

        Args:
            rule: of the plan.
            tally: has the latencies.
            now_s: of the clock of the dispatcher's events; the dispatcher sets it at each event.
            spent_s: time that earlier runs of the sweep measured.
        """
        # It loads SciPy: here, before anything is measured, and not for commands that list sweeps.
        from fleetrank.analysis.until_decided import answer, decide

        self._answer, self._decide = answer, decide
        self.now_s = now_s
        self._rule, self._tally = rule, tally
        self._began_s = now_s - spent_s
        self._news: dict[str, DecisionsMade] = {}
        self._n_said: dict[str, int] = {}

    def cells_of_round(self, cells: Sequence[Cell], index: int) -> list[Cell]:
        """The cells of one device that take part in a round, by its index; none ends its work."""
        if index < self._rule.first:
            return list(cells)
        contests: dict[str, dict[Cell, Floats]] = defaultdict(dict)
        for cell in cells:
            latencies = [self._tally.latency_ns((cell.cell_key, at)) for at in range(index)]
            logs = np.log([one if one > 0 else math.nan for one in latencies])
            if np.isfinite(logs).sum() >= MIN_VALUES:
                contests[contest_of(self._rule, cell)][cell] = logs
        chosen = [self._open(name, rivals, index) for name, rivals in contests.items()]
        return [cell for part in chosen for cell in part]

    def news(self) -> list[DecisionsMade]:
        """The newest look at each contest since the last call."""
        found, self._news = list(self._news.values()), {}
        return found

    def _open(self, contest: str, rivals: Mapping[Cell, Floats], index: int) -> list[Cell]:
        """The cells of a contest with an open decision that there is time for.

        Args:
            contest: its name.
            rivals: each cell with the logarithms of its latencies, (index,).
            index: of the round that may follow.
        """
        cells, logs = list(rivals), np.array(list(rivals.values()))
        has_first = cells[0].export.card.name == self._rule.baseline
        if self._rule.question is SweepQuestion.NOT_SLOWER and not has_first:
            return []  # the model that the others are compared with was not measured
        accuracy = [cell.export.card.accuracy_top1 for cell in cells]
        found = self._decide(logs, accuracy, self._rule)
        spent_s = self.now_s - self._began_s
        is_late, is_last = spent_s >= self._rule.budget_s, index >= self._rule.most
        chosen = [] if is_late or is_last else [cells[at] for at in sorted(found.open_models)]
        names, repeat_s = names_of(cells), spent_s / max(self._tally.n_ok, 1)
        pairs, n, n_decided = found.asked
        self._news[contest] = DecisionsMade(
            contest=contest,
            platform=cells[0].device if self._rule.mixes_platforms else cells[0].platform_key,
            question=self._rule.question,
            margin=self._rule.margin,
            n=n,
            n_decided=n_decided,
            answer=self._answer(found, names, logs),
            open_pairs=tuple(
                OpenPair(
                    a=names[a],
                    b=names[b],
                    more_rounds=(more := found.more_rounds((a, b))),
                    seconds=None if more is None else 2 * more * repeat_s,
                )
                for a, b in pairs
            ),
            n_repeats=len(chosen),
            is_budget_used=is_late and bool(pairs),
            is_news=not chosen or self._n_said.get(contest) != n_decided,
        )
        self._n_said[contest] = n_decided
        return chosen


def names_of(cells: Sequence[Cell]) -> list[str]:
    """Names of the cells of a contest: the model, and what else differs among them."""
    kinds = [(cell.execution.runtime.value, cell.execution.precision.value) for cell in cells]
    unlike = [len({kind[at] for kind in kinds}) > 1 for at in (0, 1)]
    return [
        " ".join([
            cell.export.card.name + (f":{kind[1]}" if unlike[1] else ""),
            *([kind[0]] if unlike[0] else []),
        ])
        for cell, kind in zip(cells, kinds, strict=True)
    ]  # fmt: skip
