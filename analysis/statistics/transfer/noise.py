"""How repeatable each platform's ranking is, and the highest agreement that this allows."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.known_means import cluster_weights
from fleetrank.analysis.arrays.pareto import Mask
from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats
from fleetrank.analysis.arrays.reliability import (
    MIN_REPEATS_TO_SPLIT,
    reliability_interval,
    retest_reliability,
    split_halves,
    split_reliability,
)
from fleetrank.analysis.panel.pairs import Pair, blocks
from fleetrank.analysis.panel.panel import Measure, Repeats, measures
from fleetrank.analysis.panel.session import Session
from fleetrank.foundation.wording import count_of

_FEW_REPEATS, _LEAST_SPLITS = 60, 10
"""With more repeats fewer splits are enough: at 310, ten and fifty differ by less than 0.01."""
FEW_PLATFORMS = 50
"""Up to this many platforms splits and resamples are cheap, so many are made."""


class Method(StrEnum):
    """How a reliability was found."""

    SPLIT = "split repeats"
    RETEST = "pairs of sweeps"
    RESAMPLED = "resampled repeats"
    """Of a frontier."""


Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Random halves and single sweeps of one measure on every platform, as logarithms.

    Attributes:
        halves: (2, n_models, n_platforms, n_splits), NaN where a model has fewer than 2 repeats.
        lengthening: (n_models, n_platforms), see `reliability.split_halves`.
        sweeps: (n_models, n_platforms, n_sweeps).
    """

    measure: Measure
    halves: Floats
    lengthening: Floats
    sweeps: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCeilings:
    """Reliability of both sides of every pair over its common models; NaN where undefined.

    Attributes:
        source, target, ceiling: (n_pairs,).
        has_models: (n_pairs,), whether it has the 5 common models that a rho needs.
        methods: how the two were found, `None` without a ceiling.
    """

    source: Floats
    target: Floats
    ceiling: Floats
    has_models: Mask
    methods: tuple[str | None, ...]


def noises(session: Session) -> tuple[Noise, Noise]:
    """Noise of latency alone and of FRM, in the order of `panel.measures`; made once a session."""
    return session.once(_noises)


def _noises(session: Session) -> tuple[Noise, Noise]:
    panel, repeats, seed = session.panel, session.repeats, session.selection.seed
    latency, frm = measures(panel)
    flops = np.where(panel.flops > 0, panel.flops, np.nan)
    return (
        _noise(latency, panel.keys, repeats, (slice(0, 1), np.ones_like(flops)), seed),
        _noise(frm, panel.keys, repeats, (slice(0, 2), flops), seed),
    )


def _noise(
    measure: Measure,
    keys: Sequence[str],
    repeats: Repeats,
    made_of: tuple[slice, Floats],
    seed: int,
) -> Noise:
    """The noise from the parts measured in each repeat, and the constant part."""
    measured, constant = made_of
    log_constant = np.log(constant)
    n_splits = splits_for(len(keys), repeats.processes.shape[-1])
    halves = np.empty((2, *measure.latency.shape, n_splits))
    lengthening = np.empty(measure.latency.shape)
    for column, key in enumerate(keys):
        parts = repeats.processes[measured, :, column]
        mine, longer = split_halves(parts, n_splits, platform_rng(seed, key, measure.name))
        halves[:, :, column] = mine + log_constant[:, None]
        lengthening[:, column] = np.where(np.isfinite(log_constant), longer, np.nan)
    sweeps = np.log(repeats.sweeps[measured]).sum(axis=0) + log_constant[:, None, None]
    return Noise(measure=measure, halves=halves, lengthening=lengthening, sweeps=sweeps)


def splits_for(n_platforms: int, n_repeats: int) -> int:
    """Number of splits: long halves differ less from split to split."""
    most = 200 if n_platforms <= FEW_PLATFORMS else 50
    return max(_LEAST_SPLITS, min(most, most * _FEW_REPEATS // n_repeats))


def platform_rng(seed: int, key: str, purpose: str) -> np.random.Generator:
    """A separate random stream per platform: another platform does not change its figures."""
    return np.random.default_rng([seed, zlib.crc32(f"{key} {purpose}".encode())])


def reliability_of(noise: Noise, models: Rows, column: int) -> tuple[float, Method | None, int]:
    """Reliability of one platform over `models`, how it was found, and from how many of them.

    Halves of repeats where 5 models have two of them, else pairs of sweeps; NaN and `None` where
    neither gives any; the number is then that of models with 2 repeats or more.
    """
    n_split = int(np.isfinite(noise.lengthening[models, column]).sum())
    split = split_reliability(noise.halves[:, models, column], noise.lengthening[models, column])
    if np.isfinite(split):
        return split, Method.SPLIT, n_split
    retest, n_compared = retest_reliability(noise.sweeps[models, column])
    if np.isfinite(retest):
        return retest, Method.RETEST, n_compared
    return retest, None, n_split


def why_unreliable(noise: Noise, column: int) -> str:
    """Why `reliability_of` all of a platform's models is undefined."""
    n_models = int(np.isfinite(noise.lengthening[:, column]).sum())
    if n_models < MIN_MODELS:
        return (
            f"{count_of(n_models, 'model')} with {MIN_REPEATS_TO_SPLIT} repeats or more, at least "
            f"{MIN_MODELS} needed, and no two sweeps of as many"
        )
    return "halves of its repeats do not agree at all"


def platform_interval(noise: Noise, column: int, key: str, seed: int) -> tuple[float, float] | None:
    """95 % percentile bootstrap over models of the reliability; `None` below 9 models."""
    rng = platform_rng(seed, key, f"{noise.measure.name} interval")
    return reliability_interval(noise.halves[:, :, column], noise.lengthening[:, column], rng)


def pair_ceilings(noise: Noise, pairs: Sequence[Pair]) -> PairCeilings:
    """sqrt(reliability of source x reliability of target), over each pair's common models.

    Source: Spearman 1904, correction for attenuation.
    """
    sides = np.full((2, len(pairs)), np.nan)
    has_models = np.zeros(len(pairs), dtype=np.bool_)
    methods: list[str | None] = [None] * len(pairs)
    for block in blocks(np.isfinite(noise.measure.values), pairs):
        has_models[block.where] = block.models.size >= MIN_MODELS
        found = [reliability_of(noise, block.models, column) for column in block.columns.tolist()]
        values = np.array([value for value, *_ in found])
        sides[:, block.where] = values[block.source], values[block.target]
        for where, i, j in zip(block.where, block.source, block.target, strict=True):
            methods[where] = _both(found[i][1], found[j][1])
    source, target = sides
    ceiling = np.sqrt(np.maximum(source * target, 0.0))
    return PairCeilings(
        source=source,
        target=target,
        ceiling=ceiling,
        has_models=has_models,
        methods=tuple(methods),
    )


def mean_ceiling(ceilings: PairCeilings, clusters: npt.ArrayLike) -> float:
    """The mean over pairs, weighted as their mean rho is; NaN where a pair with a rho has none.

    A share is only valid if the mean rho and the mean ceiling use the same pairs.
    """
    ranked = ceilings.ceiling[ceilings.has_models]
    if ranked.size == 0 or np.isnan(ranked).any():
        return float("nan")
    weights, _, _ = cluster_weights(ceilings.ceiling, clusters)
    return float(np.nansum(ceilings.ceiling * weights))


def _both(first: Method | None, second: Method | None) -> str | None:
    if first is None or second is None:
        return None
    return first.value if first is second else f"{first} / {second}"
