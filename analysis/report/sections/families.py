"""One sentence for each family; a rank correlation only if the family has enough models."""

from collections.abc import Sequence
from dataclasses import dataclass

from fleetrank.analysis.arrays.ranking import MIN_MODELS
from fleetrank.analysis.report.sections.headline import TIER_NAMES, interest
from fleetrank.analysis.statistics.prediction.family_errors import ALL
from fleetrank.analysis.statistics.prediction.predictability import (
    FamilyMedians,
    FamilyPrediction,
    PredictabilityResult,
)
from fleetrank.foundation.wording import count_of


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyLine:
    """One family's sentence."""

    family: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyLines:
    """Sentences of all families about one pair of tiers, or all pairs of platforms."""

    about: str
    lines: tuple[FamilyLine, ...]


def family_lines(found: PredictabilityResult | None) -> FamilyLines | None:
    """Sentences about the pair of tiers shown first on the page.

    Without a pair of tiers they are medians over pairs of platforms; `None` without any pair.
    """
    if found is None:
        return None
    directions = dict.fromkeys((one.source, one.target) for one in found.groups)
    rows: Sequence[FamilyPrediction | FamilyMedians]
    if directions:
        source, target = min(directions, key=lambda pair: interest(*pair))
        rows = [one for one in found.groups if (one.source, one.target) == (source, target)]
        about = f"from {TIER_NAMES[source]} to {TIER_NAMES[target]}"
    else:
        rows = found.medians_over_pairs()
        n_pairs = len({(one.source, one.target) for one in found.pairs})
        about = f"medians over {count_of(n_pairs, 'pair')} of platforms, source to target"
    lines = tuple(
        FamilyLine(family=one.family.replace("_", " "), sentence=_sentence(one))
        for one in rows
        if one.family != ALL and one.n_models > 0
    )
    return FamilyLines(about=about, lines=lines) if lines else None


def _sentence(one: FamilyPrediction | FamilyMedians) -> str:
    parts = [count_of(one.n_models, "model")]
    if one.rho is not None:
        parts.append(f"rho {one.rho:.2f} inside the family")
    elif one.n_models < MIN_MODELS:
        parts.append("too few for a rank correlation")
    else:
        parts.append("no rank correlation")
    if one.mean_abs_shift is not None:
        parts.append(f"average rank change {one.mean_abs_shift:.1f}")
    if one.mean_error_percent is not None:
        error = one.mean_error_percent
        parts.append(f"its latency is predicted with a mean error of {error:.0f} %")
    return ", ".join(parts)
