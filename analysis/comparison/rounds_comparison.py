"""Compares two models that took turns: without the effects of the host, as every table does."""

import math
from dataclasses import asdict, dataclass, replace

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.confidence_sequence import reach
from fleetrank.analysis.arrays.interval import student_quantile
from fleetrank.analysis.arrays.two_samples import POWER, Limits, Verdict, figures_of, ratios_of
from fleetrank.analysis.comparison.verdict import Change, percent, verdict_words, verdicts_on
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.rounds import round_values
from fleetrank.analysis.stopping_rule import StoppingRule
from fleetrank.analysis.stored.columns import ROW_KEY
from fleetrank.analysis.stored.load import last_attempts
from fleetrank.analysis.stored.scope import border_note
from fleetrank.foundation.units import NS_PER_MS
from fleetrank.foundation.wording import count_of


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
    facts = ("model", "precision", "border", "stopping_rule")
    latencies = last_attempts(frame).select(*ROW_KEY, *facts).collect()
    rows = round_values(frame, frame).adjusted.join(latencies, on=ROW_KEY)
    precise = pl.format("{}:{}", "model", "precision")
    sides = [rows.filter((pl.col("model") == model) | (precise == model)) for model in models]
    if any(side.is_empty() for side in sides):
        raise NoDataError(
            f"no round measured both {models[0]} and {models[1]}",
            "look at the failures with `fleetrank sweep status`",
        )
    adjusted = [side["adjusted_ns"].to_numpy() for side in sides]
    figures = figures_of(adjusted, [True, True], ["", ""])
    latencies_ms = (np.exp(figures.logs) / NS_PER_MS).tolist()
    pair = figures.at([0]), figures.at([1])
    ratios, rule = ratios_of(*pair), StoppingRule.parse(rows["stopping_rule"].first())
    notes = border_note(rows)
    if rule is not None:
        n = int(figures.n.min())
        usual = student_quantile(ratios.degrees, 1 - limits.alpha / 2) / math.sqrt(n)
        looked = reach(np.ones(1), n, ratios.degrees, limits.alpha)
        ratios = replace(ratios, errors=ratios.errors * looked / usual)
        notes = (*notes, f"Until decided, at most {rule.most} rounds: the interval of all looks.")
    (found,) = verdicts_on(ratios, pair, limits)
    spread = math.sqrt(figures.variance.sum()) if np.isfinite(figures.variance).all() else None
    return RoundsComparison(
        model_a=models[0],
        model_b=models[1],
        limits=limits,
        latency_a_ms=latencies_ms[0],
        latency_b_ms=latencies_ms[1],
        round_spread=spread,
        notes=notes,
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
    interval = "no interval of one round" if low is None else f"{low:.3f} to {high:.3f}"
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
