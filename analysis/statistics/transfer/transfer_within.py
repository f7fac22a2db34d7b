"""Does an order also carry over among alike models, or only between fast and slow groups?

A correlation over all models can be high although inside every family, or among models of one size,
there is none (Simpson 1951; Blyth 1972; Kievit and others 2013).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.bootstrap import (
    MIN_MODELS_FOR_INTERVAL,
    least_in_mean,
    percentile_interval,
    resample_counts,
    resampled_units,
)
from fleetrank.analysis.arrays.known_means import cluster_weights
from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats
from fleetrank.analysis.arrays.strata import NO_STRATUM, stratified_units, terciles
from fleetrank.analysis.panel.agreement import Agreement, AveragedPairs, InsideGap
from fleetrank.analysis.panel.conditions import PairGroup
from fleetrank.analysis.panel.device_models import MAX_PLATFORMS
from fleetrank.analysis.panel.draws import PairBlock, block_rng, block_values, blocks
from fleetrank.analysis.panel.panel import LATENCY, Measure, Panel, measures
from fleetrank.foundation.wording import count_of

_DRAWS = 400
"""The ends of an interval move by 0.01 to 0.02 from seed to seed."""
Strata = npt.NDArray[np.int64]


class Inside(StrEnum):
    """What the models have in common among which they are ranked."""

    FAMILIES = "families"
    SIZES = "sizes"
    """Thirds of the models by FLOPs."""

    @property
    def one(self) -> str:
        """One such group in words."""
        return "family" if self is Inside.FAMILIES else "size (third by FLOPs)"

    @property
    def measure(self) -> str:
        """The name of latency's agreement among such models."""
        return f"{LATENCY} in {self}"


def is_below(one: Agreement) -> bool:
    """Whether rho of all together is above what holds inside, beyond its uncertainty."""
    return one.gap is not None and one.gap.gap_low > 0


_HOLDS = 0.9
"""Where the inner rho is surely above it, two of 13 models move by about two ranks: no warning."""


def inside_warnings(within: Iterable[Agreement]) -> tuple[str, ...]:
    """At most one sentence: where rho over all models says too much about alike ones."""
    words = {word.measure: word for word in Inside}
    found = {
        (one.measure, frozenset((one.source, one.target))): one
        for one in within
        if is_below(one) and (one.low is None or one.low < _HOLDS)
    }
    listed: dict[str, list[str]] = {}
    for one in found.values():
        group = f"models of one {words[one.measure].one}"
        listed.setdefault(group, []).append(f"{one.rho:.2f} between {one.source} and {one.target}")
    texts = "; ".join(f"among {group} it is {', '.join(some)}" for group, some in listed.items())
    return (f"Do not choose among alike models by rho over all: {texts}.",) if texts else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mean:
    """A mean over the pairs of a group.

    Attributes:
        parts: the pairs that have a weight, by their common models.
        weights: of every pair of the group.
    """

    parts: tuple[PairBlock, ...]
    weights: Floats

    @property
    def models(self) -> Strata:
        """Rows of the models that any pair has in common; they are resampled together."""
        return np.unique(np.concatenate([part.models for part in self.parts]))

    @property
    def n_columns(self) -> int:
        """Number of platforms."""
        return np.unique(np.concatenate([part.columns for part in self.parts])).size


def within_groups(panel: Panel, groups: Sequence[PairGroup], seed: int) -> tuple[Agreement, ...]:
    """Agreement of latency inside families, then inside thirds by FLOPs, of every group."""
    latency = measures(panel)[0]
    of_each = [
        _inside_groups(latency, groups, inside, strata, seed)
        for inside, strata in strata_of(panel).items()
    ]
    return tuple(one for group in zip(*of_each, strict=True) for one in group)


def strata_of(panel: Panel) -> Mapping[Inside, Strata]:
    """The group of alike models that each model belongs to, (n_models,)."""
    families = np.array([name or "" for name in panel.families])
    _, member = np.unique(families, return_inverse=True)
    by_family = np.where(families == "", NO_STRATUM, member.reshape(-1))
    by_size = terciles(np.where(panel.flops > 0, panel.flops, np.nan))
    return MappingProxyType({Inside.FAMILIES: by_family, Inside.SIZES: by_size})


def _inside_groups(
    latency: Measure, groups: Sequence[PairGroup], inside: Inside, strata: Strata, seed: int
) -> list[Agreement]:
    found, means = [], dict[int, _Mean]()
    for number, group in enumerate(groups):
        one, mean = _of_group(latency, group, inside, strata)
        why = None if mean is None else _why_no_interval(one.n_models, mean.n_columns)
        if mean is not None and why is None:
            means[number] = mean
        found.append(one if why is None else replace(one, reason=why))
    drawn = _drawn(latency, means, strata, seed, f"inside {inside}")
    for number, (within, pooled) in drawn.items():
        low, high = np.clip(percentile_interval(within), -1.0, 1.0).tolist()
        gap_low, gap_high = (float(end) for end in percentile_interval(pooled - within))
        gap = InsideGap(gap_low=gap_low, gap_high=gap_high)
        found[number] = replace(found[number], low=low, high=high, gap=gap)
    return found


def _of_group(
    latency: Measure, group: PairGroup, inside: Inside, strata: Strata
) -> tuple[Agreement, _Mean | None]:
    """The figures without intervals; no mean without a rho."""
    # Only models whose family or size is known, so that both rhos are of the same models.
    is_placed = (strata != NO_STRATUM)[:, None]
    parts = tuple(blocks(np.isfinite(latency.values) & is_placed, group.pairs))
    shared = [n_shared(strata[part.models]) for part in parts]
    rho, least = np.full(len(group.pairs), np.nan), least_in_mean(shared)
    for part, n in zip(parts, shared, strict=True):
        if n >= least:
            once = np.ones((1, part.models.size), dtype=np.int64)
            values = block_values(latency, part)
            ((units,),) = stratified_units(values, strata[part.models], once)
            rho[part.where] = (units[:, part.source] * units[:, part.target]).sum(axis=0)
    found = Agreement(
        level=group.level,
        measure=inside.measure,
        source=group.source,
        target=group.target,
        n_models=max(shared, default=0),
        averaged=AveragedPairs(n_pairs=int(np.isfinite(rho).sum())),
    )
    if found.averaged.n_pairs == 0:
        few = count_of(found.n_models, "model")
        reason = f"{few} with another one of their {inside.one}, at least {MIN_MODELS} needed"
        return replace(found, reason=reason), None
    weights, _, _ = cluster_weights(rho, group.clusters)
    used = [at for at, part in enumerate(parts) if weights[part.where].any()]
    n_models, mean_rho = min(shared[at] for at in used), float(np.nansum(weights * rho))
    mean = _Mean(parts=tuple(parts[at] for at in used), weights=weights)
    return replace(found, n_models=n_models, rho=mean_rho), mean


def n_shared(strata: Strata) -> int:
    """Models that have another one in their stratum."""
    _, sizes = np.unique(strata[strata != NO_STRATUM], return_counts=True)
    return int(sizes[sizes > 1].sum())


def _why_no_interval(n_models: int, n_columns: int) -> str | None:
    if n_models < MIN_MODELS_FOR_INTERVAL:
        few = count_of(n_models, "model")
        return f"no interval: {few} in a pair, at least {MIN_MODELS_FOR_INTERVAL} needed"
    if n_columns > MAX_PLATFORMS:
        return f"no interval: {n_columns} platforms, computed for up to {MAX_PLATFORMS}"
    return None


def _drawn(
    latency: Measure, means: Mapping[int, _Mean], strata: Strata, seed: int, purpose: str
) -> dict[int, Floats]:
    """Rho inside, and of all together, of every mean in every resample, (2, draws) each.

    Means over the same models have the same resamples, so that a platform in several groups is
    ranked once.
    """
    drawn = {number: np.zeros((2, _DRAWS)) for number in means}
    alike = defaultdict[tuple[bytes, bytes], list[int]](list)
    for number, mean in means.items():
        alike[mean.parts[0].models.tobytes(), mean.models.tobytes()].append(number)
    for numbers in alike.values():
        first = means[numbers[0]]
        rng = block_rng(latency, first.parts[0], seed, purpose)
        counts = resample_counts(first.models.size, _DRAWS, rng)
        for asked in _by_models({number: means[number] for number in numbers}):
            models = asked[0][1].models
            mine = counts[:, np.searchsorted(first.models, models)]
            columns = np.unique(np.concatenate([part.columns for _, part in asked]))
            values = latency.values[np.ix_(models, columns)]
            both = stratified_units(values, strata[models], mine), resampled_units(values, mine)
            for side, at, rhos in _rhos(both):
                for number, part in asked:
                    drawn[number][side, at] += _sums(rhos, columns, part, means[number].weights)
    return drawn


def _by_models(means: Mapping[int, _Mean]) -> Iterable[list[tuple[int, PairBlock]]]:
    """The parts of all means, with the number of their mean, by their common models."""
    shared = defaultdict[bytes, list[tuple[int, PairBlock]]](list)
    for number, mean in means.items():
        for part in mean.parts:
            shared[part.models.tobytes()].append((number, part))
    return shared.values()


def _rhos(series: Iterable[Iterator[Floats]]) -> Iterator[tuple[int, slice, Floats]]:
    """Rho of all platforms with one another, some draws at a time: of which series and draws."""
    for side, units in enumerate(series):
        start = 0
        for some in units:
            yield side, slice(start, start + len(some)), np.swapaxes(some, 1, 2) @ some
            start += len(some)


def _sums(rhos: Floats, columns: Strata, part: PairBlock, weights: Floats) -> Floats:
    """Sum over the pairs of a part of weight x rho, (draws,)."""
    # A pair without weight is left out: its rho may be undefined.
    used = np.flatnonzero(weights[part.where])
    place = np.searchsorted(columns, part.columns)
    mine = rhos[:, place[part.source[used]], place[part.target[used]]]
    sums: Floats = mine @ weights[part.where][used]
    return sums
