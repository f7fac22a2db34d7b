"""Compares two models that took turns: the ratio in each round, and what all rounds show."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import polars as pl
from scipy import special

from fleetrank.analysis.arrays.equivalence import (
    POWER,
    Limits,
    LogRatio,
    one_sided_p,
    paired_log_ratio,
    ratio_interval,
    repeats_to_decide,
    two_sided_p,
)
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.comparison.changes import Verdict, verdict_of
from fleetrank.analysis.comparison.comparison_notes import percent, verdict_words
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.stored.load import valid_attempts
from fleetrank.foundation.units import NS_PER_MS
from fleetrank.foundation.wording import count_of

_COLUMNS = ("round_id", "model", "samples_ns", "block_sample_counts", "latency_p50_ns", "origin")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsComparison:
    """The latency of b compared with that of a. Rounds are the units of replication.

    Attributes:
        rounds: number of rounds in which both were measured.
        median_a_ms, median_b_ms: median over these rounds of the process medians.
        ratio: b over a, the geometric mean over rounds of the ratio inside each round.
        ratio_low, ratio_high: 1 - 2 alpha interval of it; `None` below 3 rounds.
        round_spread: standard deviation of the rounds' log ratios; `None` below 3 rounds.
        p_value: two-sided, of "the ratio is 1": paired t test on the log ratios.
        p_same: the larger p of the two one-sided tests (Schuirmann 1987).
        detectable_ratio: the smallest ratio that as many rounds show with a probability of 80 %.
        more_rounds: that decide it; only if undecided, and `None` if too many or not known.
    """

    model_a: str
    model_b: str
    limits: Limits
    verdict: Verdict
    rounds: int
    median_a_ms: float
    median_b_ms: float
    ratio: float
    ratio_low: float | None = None
    ratio_high: float | None = None
    round_spread: float | None = None
    p_value: float | None = None
    p_same: float | None = None
    detectable_ratio: float | None = None
    more_rounds: int | None = None

    def as_json(self) -> dict[str, object]:
        """The documented form: the fields, with margin and alpha beside them."""
        plain = asdict(self)
        return {**{name: plain[name] for name in plain if name != "limits"}, **plain["limits"]}


def compare_rounds(
    frame: pl.LazyFrame, models: tuple[str, str], limits: Limits
) -> RoundsComparison:
    """Compares two models, baseline first, in the rounds of stored attempts.

    Raises:
        NoDataError: no round measured both.
    """
    rounds = list(_rounds(frame, models))
    if not rounds:
        raise NoDataError(
            f"no round measured both {models[0]} and {models[1]}",
            "look at the failures with `fleetrank sweep status`",
        )
    differences = np.array([log_ratio for log_ratio, _ in rounds])
    medians = np.median([both for _, both in rounds], axis=0) / NS_PER_MS
    comparison = RoundsComparison(
        model_a=models[0],
        model_b=models[1],
        limits=limits,
        verdict=Verdict.UNDECIDED,
        rounds=len(rounds),
        median_a_ms=float(medians[0]),
        median_b_ms=float(medians[1]),
        ratio=math.exp(float(differences.mean())),
    )
    found = paired_log_ratio(differences)
    return comparison if found is None else _judged(comparison, found)


def rounds_sentences(found: RoundsComparison) -> tuple[str, ...]:
    """What a person reads: both latencies, the ratio, the verdict, and what could be found."""
    interval = (
        "no interval below 3 rounds"
        if found.ratio_low is None or found.ratio_high is None
        else f"{percent(1 - 2 * found.limits.alpha)} interval {found.ratio_low:.3f} to "
        f"{found.ratio_high:.3f}"
    )
    sentences = [
        f"{found.model_a}: {found.median_a_ms:.3g} ms",
        f"{found.model_b}: {found.median_b_ms:.3g} ms",
        f"ratio {found.ratio:.3f}, {interval}, over {count_of(found.rounds, 'round')}",
        f"{found.model_b} is {verdict_words(found.verdict, found.limits)}",
    ]
    if found.verdict is Verdict.UNDECIDED and found.more_rounds is not None:
        sentences[-1] += f": about {count_of(found.more_rounds, 'more round')} decide it"
    if found.detectable_ratio is not None:
        sentences.append(
            f"Smallest change that these rounds show with a probability of {percent(POWER)}: "
            f"{percent(found.detectable_ratio - 1)}."
        )
    return tuple(sentences)


def _judged(comparison: RoundsComparison, found: LogRatio) -> RoundsComparison:
    limits, n = comparison.limits, comparison.rounds
    low, high = ratio_interval(found, limits.alpha)
    judged = replace(
        comparison,
        ratio_low=low,
        ratio_high=high,
        round_spread=math.sqrt(found.variance_a),
        p_value=two_sided_p(found),
        p_same=max(one_sided_p(found, limits.margin)),
        detectable_ratio=_detectable(found, n, limits.alpha),
    )
    judged = replace(
        judged, verdict=verdict_of(judged.ratio, judged.p_value, judged.p_same, limits)
    )
    if judged.verdict is not Verdict.UNDECIDED:
        return judged
    total = repeats_to_decide(found, limits, least=n + 1)
    return replace(judged, more_rounds=None if total is None else total - n)


def _detectable(found: LogRatio, n: int, alpha: float) -> float:
    """Source: Cohen 1988, 2.4: the shift is (t of alpha + t of power) standard errors."""
    t = special.stdtrit(n - 1, 1 - alpha / 2) + special.stdtrit(n - 1, POWER)
    return math.exp(float(t) * found.standard_error)


def _rounds(
    frame: pl.LazyFrame, models: tuple[str, str]
) -> Iterator[tuple[float, tuple[float, float]]]:
    """Log ratio and process medians (ns) of each round that measured both models."""
    rows = (
        valid_attempts(frame)
        .filter(pl.col("round_id").is_not_null() & pl.col("model").is_in(models))
        .select(_COLUMNS)
        .sort("round_id")
        .collect()
    )
    for _, group in rows.group_by("round_id", maintain_order=True):
        by_model = {row["model"]: row for row in group.to_dicts()}
        if len(by_model) < len(models):
            continue
        a, b = (by_model[model] for model in models)
        logs = [_block_logs(row["samples_ns"], row["block_sample_counts"]) for row in (a, b)]
        cycles = min(map(len, logs))
        log_ratio = float(np.mean(logs[1][:cycles] - logs[0][:cycles]))
        yield log_ratio, (a["latency_p50_ns"], b["latency_p50_ns"])


def _block_logs(samples_ns: Sequence[int], counts: Sequence[int]) -> Floats:
    """Log of the median of each block, (blocks,)."""
    blocks = np.split(np.asarray(samples_ns, dtype=np.float64), np.cumsum(counts)[:-1])
    logs: Floats = np.log([np.median(block) for block in blocks])
    return logs
