"""How well latency on one platform predicts latency on another, by family of models."""

import math
import statistics
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TypedDict

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.bootstrap import MIN_MODELS_FOR_INTERVAL
from fleetrank.analysis.arrays.ranking import (
    MIN_MODELS,
    Floats,
    few_models_note,
    few_models_warning,
)
from fleetrank.analysis.panel.pair_groups import (
    PREDICTION_NOTES,
    Level,
    PairGroup,
    tier_groups,
    unlike_facts,
)
from fleetrank.analysis.panel.pairs import Pair, draws_for
from fleetrank.analysis.panel.panel import Panel, measures
from fleetrank.analysis.panel.selected_pairs import MAX_LISTED_PAIRS, directed_pairs, unlisted
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.prediction.family_errors import (
    ALL,
    Families,
    FamilyErrors,
    error_intervals,
    family_masks,
    group_errors,
    pair_errors,
)
from fleetrank.analysis.statistics.prediction.ratio_transfer import ratio_transfer_as_table
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.table_settings import METHOD
from fleetrank.foundation.wording import count_of

_SCHEMA = {
    "level": pl.String, "source": pl.String, "target": pl.String, "family": pl.String,
    "n_models": pl.Int64, "n_fitted": pl.Int64, "n_pairs": pl.Int64, "n_clusters": pl.Int64,
    "mean_error_percent": pl.Float64, "low_percent": pl.Float64, "high_percent": pl.Float64,
    "median_error_percent": pl.Float64, "rho": pl.Float64, "mean_abs_shift": pl.Float64,
    "unlike": pl.String, "reason": pl.String,
}  # fmt: skip
_MEANING = (
    "Error: |predicted / measured - 1| of a model's latency on the target, predicted from the "
    "source by a straight line through the logarithms of the other common models (least "
    f"squares, without the model itself). A pair needs at least {MIN_MODELS} common models; "
    "n_fitted is the smallest number of any pair. One line is fitted to all families together.",
    "Family 'all': mean and median over families, so each family counts once. A pair's figures "
    "are over models. A tier's mean is over a family's models, each averaged over clusters; its "
    "median is over clusters.",
    "low to high (tiers only): 95 % percentile bootstrap of the mean over models, from "
    f"{MIN_MODELS_FOR_INTERVAL} models on; fits are not repeated.",
    f"rho: Spearman's rho inside the family, from {MIN_MODELS} of its models on. mean_abs_shift: "
    "average rank change of a model among all common models. Results of a family with few "
    "models may not hold for other models of the family.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyPrediction:
    """How well latency on the target is predicted for one family; `None` is undefined.

    Attributes:
        level: `TIER` or `PAIR`; source and target name two of these.
        family: `family_errors.ALL` counts each family once.
        n_models: models with an error; `n_fitted` is the fewest common models of any pair.
        n_pairs, n_clusters: with an error; `None` for a single pair.
        low_percent, high_percent: of the mean error; `None` for a single pair.
        unlike: facts that differ between the two platforms of a pair.
        reason: why a figure is missing.
    """

    level: Level
    source: str
    target: str
    family: str
    n_models: int
    n_fitted: int
    mean_error_percent: float | None
    median_error_percent: float | None
    rho: float | None
    mean_abs_shift: float | None
    reason: str | None
    n_pairs: int | None = None
    n_clusters: int | None = None
    low_percent: float | None = None
    high_percent: float | None = None
    unlike: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyMedians:
    """Medians over pairs of the figures of one family; `None` without any.

    Attributes:
        n_models: the most of any pair.
    """

    family: str
    n_models: int
    n_pairs: int
    rho: float | None
    mean_abs_shift: float | None
    mean_error_percent: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictabilityResult:
    """Errors of all families.

    Attributes:
        groups: from tier to tier, all families of a group side by side.
        pairs: all families of a directed pair side by side; empty above `MAX_LISTED_PAIRS` pairs.
        selected: every directed pair that the selection names.
    """

    groups: tuple[FamilyPrediction, ...]
    pairs: tuple[FamilyPrediction, ...]
    selected: tuple[Pair, ...]

    def medians_over_pairs(self) -> tuple[FamilyMedians, ...]:
        """One entry per family; used instead of tiers where one device was measured."""
        families: dict[str, list[FamilyPrediction]] = defaultdict(list)
        for one in self.pairs:
            families[one.family].append(one)
        return tuple(map(_medians, families.values()))


def predictability(session: Session) -> PredictabilityResult:
    """Leave-one-out error by family, from tier to tier and for every directed pair.

    Made once a session.

    Raises:
        NoDataError: fewer than two platforms match.
    """
    return session.once(_predictability)


def _predictability(session: Session) -> PredictabilityResult:
    panel, selection = session.panel, session.selection
    pairs = directed_pairs(panel, selection)
    logs = measures(panel)[0].values
    families = family_masks(panel.families)
    groups = tier_groups(panel, pairs, is_directed=True)
    draws = draws_for([pair for group in groups for pair in group.pairs]).bootstrap
    listed = pairs if len(pairs) <= MAX_LISTED_PAIRS else []
    return PredictabilityResult(
        groups=tuple(
            one
            for group in groups
            for one in _of_group(logs, group, families, (draws, selection.seed))
        ),
        pairs=tuple(_of_pairs(panel, logs, listed, families)),
        selected=tuple(pairs),
    )


def predictability_table(session: Session) -> Table:
    """Error of latency predicted from another platform, by a fitted line or by a ratio."""
    if METHOD.chosen(session.selection) == "ratio":
        return ratio_transfer_as_table(session)
    return _errors_as_table(session)


def _errors_as_table(session: Session) -> Table:
    """Leave-one-out error by family, from tier to tier and for every directed pair."""
    found = predictability(session)
    is_listed = len(found.selected) <= MAX_LISTED_PAIRS
    n_models = len(session.panel.models)
    notes = (
        *session.panel.notes,
        *(() if is_listed else (unlisted(found.selected, session),)),
        *few_models_warning(n_models),
    )
    explanation = (
        *PREDICTION_NOTES,
        *_MEANING,
        f"Seed {session.selection.seed}: {draws_for(found.selected).bootstrap} resamples.",
        *few_models_note(n_models),
    )
    return Table(
        title="Predictability by family",
        frame=predictions_frame((*found.groups, *found.pairs)),
        notes=notes,
        explanation=explanation,
    )


def predictions_frame(found: Sequence[FamilyPrediction]) -> pl.DataFrame:
    """The columns of the table."""
    return pl.DataFrame([asdict(one) for one in found], schema=_SCHEMA)


def _of_group(
    logs: Floats, group: PairGroup, families: Families, random: tuple[int, int]
) -> Iterator[FamilyPrediction]:
    draws, seed = random
    found = group_errors(logs, group, families)
    names = f"predictability/{group.source}/{group.target}"
    rng = np.random.default_rng([seed, zlib.crc32(names.encode())])
    intervals = error_intervals(found.by_model, families, draws, rng)
    for at, (family, interval) in enumerate(zip([*families, ALL], intervals, strict=True)):
        low, high = (100 * bound for bound in interval) if interval else (None, None)
        one = FamilyPrediction(
            level=group.level,
            source=group.source,
            target=group.target,
            family=family,
            n_pairs=found.n_pairs,
            n_clusters=found.n_clusters,
            low_percent=low,
            high_percent=high,
            **_figures(found.figures, at, found.fewest),
        )
        if one.reason is None and low is None:
            one = replace(one, reason=f"no interval below {MIN_MODELS_FOR_INTERVAL} models")
        yield one


def _of_pairs(
    panel: Panel, logs: Floats, pairs: Sequence[Pair], families: Families
) -> Iterator[FamilyPrediction]:
    facts = panel.platforms.to_dicts()
    found, n_common = pair_errors(logs, pairs, families)
    for at, (i, j) in enumerate(pairs):
        unlike = unlike_facts(facts[i], facts[j])
        for number, family in enumerate([*families, ALL]):
            yield FamilyPrediction(
                level=Level.PAIR,
                source=panel.keys[i],
                target=panel.keys[j],
                family=family,
                unlike=unlike,
                **_figures(found, (number, at), int(n_common[at])),
            )


class _Figures(TypedDict):
    n_models: int
    n_fitted: int
    mean_error_percent: float | None
    median_error_percent: float | None
    rho: float | None
    mean_abs_shift: float | None
    reason: str | None


def _figures(found: FamilyErrors, at: int | tuple[int, int], n_fitted: int) -> _Figures:
    n_models, mean, rho = int(found.n_models[at]), _known(found.mean[at]), _known(found.rho[at])
    median = _known(found.median[at])
    return {
        "n_models": n_models,
        "n_fitted": n_fitted,
        "mean_error_percent": None if mean is None else 100 * mean,
        "median_error_percent": None if median is None else 100 * median,
        "rho": rho,
        "mean_abs_shift": _known(found.shift[at]),
        "reason": _reason(n_models, n_fitted, mean, rho),
    }


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _medians(pairs: Sequence[FamilyPrediction]) -> FamilyMedians:
    return FamilyMedians(
        family=pairs[0].family,
        n_models=max(one.n_models for one in pairs),
        n_pairs=len(pairs),
        rho=_median(one.rho for one in pairs),
        mean_abs_shift=_median(one.mean_abs_shift for one in pairs),
        mean_error_percent=_median(one.mean_error_percent for one in pairs),
    )


def _median(values: Iterable[float | None]) -> float | None:
    some = [value for value in values if value is not None]
    return statistics.median(some) if some else None


def _reason(n_models: int, n_fitted: int, mean: float | None, rho: float | None) -> str | None:
    if n_fitted < MIN_MODELS:
        return f"{count_of(n_fitted, 'model')} in common, at least {MIN_MODELS} needed"
    if mean is None:
        return "the other models are all equal on the source, or the family has no common model"
    if n_models < MIN_MODELS:
        return f"no rho: too few, {n_models} of the {MIN_MODELS} models needed"
    return None if rho is not None else "no rho: too few in any pair, or all equal on one side"
