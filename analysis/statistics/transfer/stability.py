"""How steady are ranks and ratios over the platforms of one tier?"""

import zlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.bootstrap import (
    MIN_MODELS_FOR_INTERVAL,
    least_in_mean,
    percentile_interval,
    resample_counts,
)
from fleetrank.analysis.arrays.frm import EQUAL_WEIGHTS, FrmWeights, frm, ratios
from fleetrank.analysis.arrays.ranking import (
    MIN_MODELS,
    Floats,
    average_ranks,
    few_models_warning,
    require_finite,
)
from fleetrank.analysis.arrays.sample_size import few_models_note
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.agreement import group_agreement
from fleetrank.analysis.panel.conditions import chosen_platforms, tier_groups
from fleetrank.analysis.panel.panel import (
    FRM,
    FRM_WITHOUT_MEMORY,
    Measure,
    Panel,
    has_memory,
    incomplete_notes,
    measures,
)
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.transfer.decomposition import component_measures
from fleetrank.analysis.stored.columns import TIERS
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.foundation.wording import count_of


class StabilityStatistic(StrEnum):
    """What is said about the platforms of a tier."""

    RANK_STD = "rank_std"
    RANK_CV = "rank_cv"
    RATIO_STD = "ratio_std"
    RATIO_CV = "ratio_cv"
    RHO = "rho"


STATISTICS = tuple(StabilityStatistic)[:4]
"""The spreads, in the order of `spreads`."""
RESAMPLES = 1000


def spreads(ratios: Floats) -> Floats:
    """Per model the spread over platforms of its rank and of its ratio.

    From (n_models, n_platforms), at least 2 platforms, to (n_models, 4): standard deviation
    (n - 1) and coefficient of variation (standard deviation over mean) of the rank, then of the
    ratio.

    Raises:
        ValueError: fewer than 2 platforms, NaN, or a ratio of 0 or less.
    """
    require_finite(ratios)
    if ratios.shape[1] < 2:
        raise ValueError("a spread needs 2 platforms")
    if (ratios <= 0).any():
        raise ValueError("a ratio must be above 0: remove models without one")
    columns = []
    for values in (average_ranks(ratios), ratios):
        deviation = values.std(axis=1, ddof=1)
        # Rounding gives equal values a small deviation from their mean.
        deviation[np.ptp(values, axis=1) == 0] = 0.0
        columns += [deviation, deviation / values.mean(axis=1)]
    return np.column_stack(columns)


def mean_interval(values: Floats, rng: np.random.Generator) -> tuple[Floats, Floats] | None:
    """95 % percentile bootstrap over models of column means of (n_models, n_columns).

    `None` below 9 models. Ranks are among all models; a resample does not rank again.
    """
    require_finite(values)
    n_models = values.shape[0]
    if n_models < MIN_MODELS_FOR_INTERVAL:
        return None
    counts = resample_counts(n_models, RESAMPLES, rng)
    return percentile_interval(counts @ values / n_models)


Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_CUBE_ROOT = "latency_cube_root"
_ORDER = ("latency", _CUBE_ROOT, FRM, FRM_WITHOUT_MEMORY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stability:
    """One statistic of one measure over the platforms of a tier at one batch.

    Attributes:
        n_models: measured on all of the platforms; of rho, the fewest of any pair.
        n_platforms: of a spread, those with enough models.
        value: `None` has its `reason`; so has a missing interval.
        null_mean, null_p95: of rho with permuted latencies; `None` for a spread.
    """

    tier: str
    batch: int | None
    statistic: StabilityStatistic
    measure: str
    n_models: int
    n_platforms: int
    n_device_models: int
    value: float | None = None
    low: float | None = None
    high: float | None = None
    null_mean: float | None = None
    null_p95: float | None = None
    reason: str | None = None


def stability(session: Session) -> tuple[Stability, ...]:
    """Spread of rank and ratio, and rho, of each tier and batch; sorted by tier and statistic.

    Raises:
        NoDataError: no tier has two platforms of equal batch.
    """
    panel = session.panel
    chosen, _ = chosen_platforms(panel, session.selection)
    groups = _groups(panel, chosen)
    if not groups:
        raise NoDataError(
            "no tier has two platforms of equal batch to compare",
            "measure a second device or runtime of a tier; " + " ".join(panel.notes),
        )
    found = [
        one
        for columns in groups
        for measure in _measures(panel)
        for one in _of_platforms(panel, measure, columns, session.selection.seed)
    ]
    return tuple(sorted(found, key=_place))


def stability_table(session: Session) -> Table:
    """Spread of rank and ratio, and rho, over the platforms of each tier and batch."""
    panel, found = session.panel, stability(session)
    n_models = len(panel.models)
    values = {"seed": session.selection.seed, "resamples": RESAMPLES}
    return Table.of(
        Stability,
        found,
        title="Stability inside a tier",
        notes=(*panel.notes, *incomplete_notes(panel), *few_models_warning(n_models)),
        explanation=(*explained("trust/stability", values), *few_models_note(n_models)),
    )


def _groups(panel: Panel, chosen: list[int]) -> list[list[int]]:
    """Columns by tier and batch, where there are at least two."""
    found: dict[tuple[object, object], list[int]] = defaultdict(list)
    facts = panel.platforms.to_dicts()
    for column in chosen:
        found[facts[column]["tier"], facts[column]["batch"]].append(column)
    return [columns for columns in found.values() if len(columns) > 1]


def _measures(panel: Panel) -> tuple[Measure, Measure, Measure]:
    """Latency over all its models; its cube root and FRM over those with every component."""
    latency, compound = measures(panel)
    alone = component_measures(panel, _usual_weights(panel))[0]
    root = Measure(name=_CUBE_ROOT, rest=alone.rest, latency=alone.latency)
    # No figure of this table uses the residual null.
    return replace(latency, flops=None), root, replace(compound, flops=None)


def _usual_weights(panel: Panel) -> FrmWeights:
    return EQUAL_WEIGHTS if has_memory(panel) else FrmWeights(memory=0.0)


def _of_platforms(
    panel: Panel, measure: Measure, columns: list[int], seed: int
) -> Iterator[Stability]:
    facts = panel.platforms[columns]
    known = np.isfinite(measure.values[:, columns])
    is_kept, left_out = _with_enough(known.sum(axis=0))
    models = np.flatnonzero(known[:, is_kept].all(axis=1))
    blank = Stability(
        tier=str(facts["tier"][0]),
        batch=facts["batch"][0],
        statistic=StabilityStatistic.RHO,
        measure=measure.name,
        n_models=models.size,
        n_platforms=len(columns),
        n_device_models=facts["device_model"].n_unique(),
    )
    kept = [column for column, is_in in zip(columns, is_kept, strict=True) if is_in]
    yield from _spreads(panel, blank, (models, kept), seed, left_out)
    yield _rho(panel, measure, blank, columns, seed)


def _with_enough(n_models: Ints) -> tuple[Mask, str | None]:
    """Which platforms enter the spreads, and how many are left out.

    One with few models would leave only these to all. The rule is that of means over pairs; two
    platforms at least stay.
    """
    least = least_in_mean(np.sort(n_models)[:-1].tolist())
    is_kept = n_models >= least
    n_out = int((~is_kept).sum())
    if n_out == 0 or is_kept.sum() < 2:
        return np.ones(n_models.shape, dtype=np.bool_), None
    return is_kept, f"left out: {count_of(n_out, 'platform')} with fewer than {least} models"


def _spreads(
    panel: Panel,
    blank: Stability,
    grid: tuple[Ints, list[int]],
    seed: int,
    left_out: str | None,
) -> Iterator[Stability]:
    models, columns = grid
    there, reasons = count_of(models.size, "model"), [left_out] if left_out else []
    kinds = panel.platforms[columns]["device_model"].n_unique()
    blank = replace(blank, n_platforms=len(columns), n_device_models=kinds)
    if models.size < MIN_MODELS:
        few = f"{there} on all of these platforms, at least {MIN_MODELS} needed"
        reason = "; ".join([*reasons, few])
        yield from (replace(blank, statistic=name, reason=reason) for name in STATISTICS)
        return
    values = spreads(_ratios(panel, blank.measure, np.ix_(models, np.array(columns))))
    # The same resamples for every measure, so that their intervals can be compared.
    key = zlib.crc32(" ".join(panel.keys[column] for column in columns).encode())
    interval = mean_interval(values, np.random.default_rng([seed, key]))
    if interval is None:
        reasons.append(f"no interval: {there}, at least {MIN_MODELS_FOR_INTERVAL} needed")
    for number, name in enumerate(STATISTICS):
        yield replace(
            blank,
            statistic=name,
            value=float(values[:, number].mean()),
            low=None if interval is None else float(interval[0][number]),
            high=None if interval is None else float(interval[1][number]),
            reason="; ".join(reasons) or None,
        )


def _ratios(panel: Panel, name: str, grid: tuple[Ints, ...]) -> Floats:
    latency = panel.latency[grid]
    if name in {FRM, FRM_WITHOUT_MEMORY}:
        weights = _usual_weights(panel)
        return frm(panel.flops[grid[0][:, 0]], latency, panel.memory[grid], weights=weights)
    return np.cbrt(ratios(latency)) if name == _CUBE_ROOT else ratios(latency)


def _rho(
    panel: Panel, measure: Measure, blank: Stability, columns: list[int], seed: int
) -> Stability:
    pairs = [(i, j) for at, i in enumerate(columns) for j in columns[at + 1 :]]
    groups = tier_groups(panel, pairs)
    if not groups:
        return replace(blank, reason="one device only: rho is between different devices")
    (group,) = groups
    found = group_agreement(group, measure, seed)
    same = {name: getattr(found, name) for name in ("n_models", "low", "high", "reason")}
    nulls = {name: getattr(found.nulls, name) for name in ("null_mean", "null_p95")}
    return replace(blank, value=found.rho, **same, **nulls)


def _place(one: Stability) -> tuple[int, str, int, int, int]:
    """Sorts the measures of one statistic next to each other."""
    return (
        TIERS.index(one.tier) if one.tier in TIERS else len(TIERS),
        one.tier,
        -1 if one.batch is None else one.batch,
        list(StabilityStatistic).index(one.statistic),
        _ORDER.index(one.measure),
    )
