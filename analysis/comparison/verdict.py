"""Is B slower than A? One verdict over two samples, whatever they come from.

Slower, faster, the same within a margin, or undecided: of two sweeps, of two models, or of models
that took turns.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

import numpy as np
import polars as pl
from scipy import special

from fleetrank.analysis.arrays.bootstrap import adjust_p
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.arrays.significance import (
    MAX_PLANNED,
    MIN_FOR_VARIANCE,
    MIN_PROCESSES,
    MIN_ROUNDS,
    POWER,
    Limits,
    LogRatio,
    cliffs_delta,
    detectable_ratio,
    log_ratio,
    mann_whitney,
    one_sided_p,
    pooled_log_ratio,
    ratio_interval,
    repeats_to_decide,
    two_sided_p,
)
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.rounds import round_values
from fleetrank.analysis.stored.columns import ROW_KEY
from fleetrank.analysis.stored.load import last_attempts
from fleetrank.analysis.stored.scope import border_note
from fleetrank.analysis.tables.table import explained
from fleetrank.foundation.errors import count_of
from fleetrank.foundation.vocabulary import NS_PER_MS


class Verdict(StrEnum):
    """The result of a comparison. Exactly one applies, the first whose condition holds."""

    SLOWER = "slower"
    """The rank test's adjusted p is at most alpha, and the ratio is at least 1 + margin."""
    FASTER = "faster"
    """The same, and the ratio is at most 1 / (1 + margin)."""
    UNDECIDED = "undecided"
    """Neither a change nor its absence is shown."""
    SAME = "same"
    """Two one-sided tests show that the ratio is inside the margin: adjusted p at most alpha."""
    REFUSED = "refused"
    """Measured in both sweeps, but not comparable."""
    ONE_SIDED = "one_sided"
    """Measured in one of the two sweeps only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The latency of b compared with that of a; a missing figure is `None`.

    Attributes:
        n_a, n_b: processes of each side.
        ratio: median of b over median of a; `None` if that of a is 0. Of models that took turns,
            the ratio of the geometric means.
        ratio_low, ratio_high: 1 - 2 alpha interval of the ratio of the geometric means; of models
            that took turns 1 - alpha, as `faster` has it.
        u: pairs of processes in which b is slower.
        cliffs_delta: P(b slower) - P(b faster), -1 to 1.
        p_value: of the two-sided rank test for this change alone, or of the t test;
            `p_adjusted` is over all.
        p_not_slower, p_not_faster: one-sided p of "slower (faster) by the margin or more".
        p_same_adjusted: the larger of both, adjusted over all changes.
        detectable_ratio: the smallest ratio that a comparison like this finds as a change.
        more_repeats: how many more repeats a side decide it; only if the verdict is undecided,
            and `None` if they are too many or the variance is not known.
    """

    verdict: Verdict
    n_a: int | None = None
    n_b: int | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    u: float | None = None
    cliffs_delta: float | None = None
    p_value: float | None = None
    p_adjusted: float | None = None
    p_not_slower: float | None = None
    p_not_faster: float | None = None
    p_same_adjusted: float | None = None
    detectable_ratio: float | None = None
    more_repeats: int | None = None
    reason: str | None = None


Samples = tuple[Floats, Floats]
"""Process medians of both sides, (n_a,) and (n_b,)."""


def verdict(a: Floats, b: Floats, limits: Limits, *, in_turns: bool = False) -> Change:
    """The verdict on one pair of samples; see `verdicts`."""
    return verdicts([(a, b)], limits, in_turns=in_turns)[0]


def verdicts(
    samples: Iterable[Samples], limits: Limits, *, in_turns: bool = False
) -> tuple[Change, ...]:
    """The verdict on each pair of samples, with p-values adjusted over all of them.

    Benjamini-Hochberg adjusts the tests for a change and those of sameness separately: alpha is the
    accepted share of wrong claims among the slower and faster ones, and among the same ones.

    Args:
        samples: those of two sides.
        limits: margin, and false discovery rate.
        in_turns: the values are those of `rounds.RoundValues.adjusted`.
    """
    pairs = list(samples)
    found = [(pooled_log_ratio if in_turns else log_ratio)(a, b) for a, b in pairs]
    test = _tested_turns if in_turns else _tested
    tested = [test(pair, ratio, limits) for pair, ratio in zip(pairs, found, strict=True)]
    p_values = adjust_p([change.p_value for change in tested])
    # Both one-sided tests must be significant.
    p_same = adjust_p(
        [
            None
            if change.p_not_slower is None or change.p_not_faster is None
            else max(change.p_not_slower, change.p_not_faster)
            for change in tested
        ]
    )
    changes = [
        replace(
            change,
            p_adjusted=p,
            p_same_adjusted=same,
            verdict=_verdict_of(change.ratio, p, same, limits),
        )
        for change, p, same in zip(tested, p_values, p_same, strict=True)
    ]
    levels = _levels(changes, limits)
    return tuple(
        _planned(change, ratio, levels, in_turns=in_turns)
        for change, ratio in zip(changes, found, strict=True)
    )


def _tested(pair: Samples, found: LogRatio | None, limits: Limits) -> Change:
    a, b = pair
    median_a = float(np.median(a))
    ratio = float(np.median(b)) / median_a if median_a > 0 else None
    change = _inside(
        Change(verdict=Verdict.UNDECIDED, n_a=a.size, n_b=b.size, ratio=ratio), found, limits
    )
    if min(a.size, b.size) < MIN_PROCESSES:
        return change
    u, p_value = mann_whitney(a, b)
    return replace(change, u=u, p_value=p_value, cliffs_delta=cliffs_delta(a, b))


def _tested_turns(pair: Samples, found: LogRatio | None, limits: Limits) -> Change:
    a, b = pair
    ratio = math.exp(float(np.log(b).mean() - np.log(a).mean()))
    change = Change(verdict=Verdict.UNDECIDED, n_a=a.size, n_b=b.size, ratio=ratio)
    if found is None:
        return change
    low, high = ratio_interval(found, limits.alpha / 2)
    change = _inside(change, found, limits)
    return replace(change, ratio_low=low, ratio_high=high, p_value=two_sided_p(found))


def _inside(change: Change, found: LogRatio | None, limits: Limits) -> Change:
    """The change with the interval of its ratio, and both one-sided tests of the margin."""
    if found is None:
        return change
    low, high = ratio_interval(found, limits.alpha)
    slower, faster = one_sided_p(found, limits.margin)
    return replace(change, ratio_low=low, ratio_high=high, p_not_slower=slower, p_not_faster=faster)


def _verdict_of(
    ratio: float | None, p: float | None, p_same: float | None, limits: Limits
) -> Verdict:
    """The verdict by the rules of `Verdict`; a test that was not possible has no p.

    Args:
        ratio: latency of b over that of a.
        p: of the test for a change.
        p_same: the larger p of the two one-sided tests.
        limits: margin and level.
    """
    if ratio is not None and p is not None and p <= limits.alpha:
        if ratio >= 1 + limits.margin:
            return Verdict.SLOWER
        if ratio <= 1 / (1 + limits.margin):
            return Verdict.FASTER
    if p_same is not None and p_same <= limits.alpha:
        return Verdict.SAME
    return Verdict.UNDECIDED


@dataclass(frozen=True, slots=True, kw_only=True)
class _Levels:
    """Levels of one more claim, after k claims among m tests: alpha (k + 1) / m, at most alpha.

    Attributes:
        single: of a change that is the only one among all tested, alpha / m.
        alpha: of one test alone.
    """

    change: Limits
    same: Limits
    single: float
    alpha: float


def _levels(changes: Sequence[Change], limits: Limits) -> _Levels:
    of_change = [change.p_adjusted for change in changes if change.p_adjusted is not None]
    of_same = [change.p_same_adjusted for change in changes if change.p_same_adjusted is not None]
    return _Levels(
        change=_next_level(limits, of_change),
        same=_next_level(limits, of_same),
        single=limits.alpha / max(len(of_change), 1),
        alpha=limits.alpha,
    )


def _next_level(limits: Limits, adjusted: Sequence[float]) -> Limits:
    claims = sum(p <= limits.alpha for p in adjusted)
    return replace(limits, alpha=limits.alpha * (claims + 1) / max(len(adjusted), claims + 1))


def _planned(change: Change, found: LogRatio | None, levels: _Levels, *, in_turns: bool) -> Change:
    """Adds the detectable ratio and, where nothing is decided, the repeats that decide it."""
    n_a, n_b = change.n_a or 0, change.n_b or 0
    fewest = min(n_a, n_b)
    if found is None:
        return replace(change, reason=_no_variance(fewest, in_turns=in_turns))
    detectable = (
        _detectable_in_turns(found, levels.single)
        if in_turns
        else detectable_ratio(found, n_a, n_b, levels.single)
    )
    change = replace(change, detectable_ratio=detectable)
    if change.verdict is Verdict.SAME and _is_claimed(change.p_adjusted, levels):
        return replace(change, reason="a difference, but smaller than the margin")
    if change.verdict is not Verdict.UNDECIDED:
        return change
    is_near = abs(found.estimate) < levels.same.bound
    total = repeats_to_decide(
        found,
        levels.same if is_near else levels.change,
        least=fewest + 1 if is_near or in_turns else max(fewest + 1, MIN_PROCESSES),
    )
    more = None if total is None else total - fewest
    return replace(change, more_repeats=more, reason=_reason(change, more, levels))


def _detectable_in_turns(found: LogRatio, alpha: float) -> float:
    """Source: Cohen 1988, 2.4: the shift is (t of alpha + t of power) standard errors."""
    t = special.stdtrit(found.degrees, [1 - alpha / 2, POWER]).sum()
    return math.exp(float(t) * found.standard_error)


def _no_variance(n: int, *, in_turns: bool) -> str:
    if n >= (MIN_ROUNDS if in_turns else MIN_FOR_VARIANCE):
        return "a latency of 0 has no ratio"
    if in_turns:
        return f"{count_of(n, 'round')}: too few for a variance, at least {MIN_ROUNDS} needed"
    few = count_of(n, "process", "processes")
    return f"{few}: too few for a variance, at least {MIN_PROCESSES} a side needed"


def _reason(change: Change, more: int | None, levels: _Levels) -> str:
    """Why nothing is decided, and what decides it."""
    decides = (
        f"more than {MAX_PLANNED} repeats a side needed"
        if more is None
        else f"{count_of(more, 'more repeat')} a side decide it"
    )
    if change.p_value is None:
        few = count_of(min(change.n_a or 0, change.n_b or 0), "process", "processes")
        return f"{few}, at least {MIN_PROCESSES} a side needed to find a change; {decides}"
    if not _is_claimed(change.p_value, levels):
        return decides
    if not _is_claimed(change.p_adjusted, levels):
        return f"unlikely alone, but possible by chance among so many cells; {decides}"
    return f"a difference, but not shown to be inside the margin; {decides}"


def _is_claimed(p: float | None, levels: _Levels) -> bool:
    return p is not None and p <= levels.alpha


def percent(share: float) -> str:
    """`5 %`, with at most three digits."""
    return f"{100 * share:.3g} %"


def verdict_words(verdict: Verdict, limits: Limits) -> str:
    """The verdict as a reader sees it: a sameness always with its margin."""
    if verdict is Verdict.SAME:
        return f"same within {percent(limits.margin)}"
    return verdict.value.replace("_", "-")


def worded_verdicts(frame: pl.DataFrame, limits: Limits) -> pl.DataFrame:
    """The frame with the column `verdict` in words."""
    words = {verdict.value: verdict_words(verdict, limits) for verdict in Verdict}
    return frame.with_columns(pl.col("verdict").replace(words))


def verdict_meaning(limits: Limits, part: str = "compare/verdict") -> tuple[str, ...]:
    """What the verdicts and their figures mean, or another text about them."""
    return explained(
        part,
        {
            "margin": percent(limits.margin),
            "alpha": limits.alpha,
            "level": percent(1 - 2 * limits.alpha),
            "power": percent(POWER),
            "min_for_variance": MIN_FOR_VARIANCE,
            "min_processes": MIN_PROCESSES,
        },
    )


# Compares two models that took turns: without the effects of the host, as every table does.


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsComparison(Change):
    """The latency of b compared with that of a. Rounds are the units of replication.

    Attributes:
        latency_a_ms, latency_b_ms: without what the host did; geometric means, as in `ratio`.
        notes: that inputs and outputs of the files have unlike types.
        round_spread: standard deviation of a round's log ratio; `None` of one round.
    """

    model_a: str
    model_b: str
    limits: Limits
    latency_a_ms: float
    latency_b_ms: float
    round_spread: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def rounds(self) -> int:
        """Number of rounds of the model with fewer."""
        return min(self.n_a or 0, self.n_b or 0)

    def as_json(self) -> dict[str, object]:
        """The documented form, with margin and alpha."""
        same = (
            "model_a", "model_b", "verdict", "rounds", "latency_a_ms", "latency_b_ms", "ratio",
            "ratio_low", "ratio_high", "round_spread", "p_value", "detectable_ratio", "notes",
        )  # fmt: skip
        return {
            **{name: getattr(self, name) for name in same},
            "p_same": self.p_same_adjusted,
            "more_rounds": self.more_repeats,
            **asdict(self.limits),
        }


def compare_rounds(
    frame: pl.LazyFrame, models: tuple[str, str], limits: Limits
) -> RoundsComparison:
    """Compares two models, baseline first, perhaps as `NAME:PRECISION`, in rounds of attempts.

    Raises:
        NoDataError: no round measured both.
    """
    facts = ("model", "precision", "border")
    latencies = last_attempts(frame).select(*ROW_KEY, *facts).collect()
    rows = round_values(frame, frame).adjusted.join(latencies, on=ROW_KEY)
    precise = pl.format("{}:{}", "model", "precision")
    sides = [rows.filter((pl.col("model") == model) | (precise == model)) for model in models]
    if any(side.is_empty() for side in sides):
        raise NoDataError(
            f"no round measured both {models[0]} and {models[1]}",
            "look at the failures with `fleetrank sweep status`",
        )
    a, b = (side["adjusted_ns"].to_numpy() for side in sides)
    latencies_ms = [float(np.exp(np.log(one).mean())) / NS_PER_MS for one in (a, b)]
    found = verdict(a, b, limits, in_turns=True)
    spread = math.sqrt(sum(np.log(one).var(ddof=1) for one in (a, b))) if len(a) > 1 else None
    return RoundsComparison(
        model_a=models[0],
        model_b=models[1],
        limits=limits,
        latency_a_ms=latencies_ms[0],
        latency_b_ms=latencies_ms[1],
        round_spread=spread,
        notes=border_note(rows),
        **asdict(found),
    )


def rounds_sentences(found: RoundsComparison) -> tuple[str, ...]:
    """What a person reads: both latencies, the ratio, the verdict, and what could be found."""
    ratio, low, high = found.ratio or math.nan, found.ratio_low, found.ratio_high
    fast, slow = found.model_b, found.model_a
    if ratio > 1:
        fast, slow = slow, fast
    else:  # how many times as fast it is, as `faster` says
        ratio, low, high = 1 / ratio, high and 1 / high, low and 1 / low
    interval = (
        f"no interval below {MIN_ROUNDS} rounds" if low is None else f"{low:.3f} to {high:.3f}"
    )
    sentences = [
        f"{found.model_a}: {found.latency_a_ms:.4g} ms",
        f"{found.model_b}: {found.latency_b_ms:.4g} ms",
        f"{fast} is {ratio:.3f} times as fast as {slow} here "
        f"({interval}, {count_of(found.rounds, 'round')})",
        f"{found.model_b} is {verdict_words(found.verdict, found.limits)}",
    ]
    if found.verdict is Verdict.UNDECIDED and found.more_repeats is not None:
        sentences[-1] += f": about {count_of(found.more_repeats, 'more round')} decide it"
    if found.detectable_ratio is not None:
        sentences.append(
            f"Smallest change that these rounds show with a probability of {percent(POWER)}: "
            f"{percent(found.detectable_ratio - 1)}."
        )
    return (*sentences, *found.notes)
