"""How repeatable each platform's ranking is, and the highest agreement that this allows."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
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
from fleetrank.analysis.panel.conditions import Pair
from fleetrank.analysis.panel.draws import blocks
from fleetrank.analysis.panel.panel import Measure, Panel, has_memory, measures
from fleetrank.analysis.panel.repeats import Repeats
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.latency_statistic import STATISTIC, are_unlike
from fleetrank.foundation.wording import count_of

_FEW_REPEATS, _LEAST_SPLITS = 60, 10
"""With more repeats fewer splits are enough: at 310, ten and fifty differ by less than 0.01."""
UNLIKE_STATISTICS = "no ceiling between unlike statistics"
"""Reason of a pair of platforms, such as a mean and a minimum."""
FEW_PLATFORMS = 50
"""Up to this many platforms splits and resamples are cheap, so many are made."""


class Method(StrEnum):
    """How a reliability was found."""

    SESSIONS = "pairs of sessions"
    SPLIT = "split repeats"
    RETEST = "pairs of sweeps"


Rows = npt.NDArray[np.int64]
Found = tuple[float, Method | None, int]
"""A reliability, how it was found, and from how many models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Random halves and single sweeps of one measure on every platform, as logarithms.

    Attributes:
        halves: (2, n_models, n_platforms, n_splits), NaN where a model has fewer than 2 repeats.
        lengthening: (n_models, n_platforms), see `reliability.split_halves`.
        sweeps: (n_models, n_platforms, n_sweeps).
        sessions: (n_models, n_platforms, n_sessions), where a model has 2 repeats or more.
        statistics: what the latencies of each platform are; `None` where not stated.
        known: what `reliability_of` found, by models and column.
    """

    measure: Measure
    halves: Floats
    lengthening: Floats
    sweeps: Floats
    sessions: Floats
    statistics: tuple[str | None, ...]
    known: dict[tuple[bytes, int], Found] = field(default_factory=dict, compare=False, repr=False)


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

    def chosen(self, at: Rows) -> "PairCeilings":
        """Those of the pairs at these positions."""
        return PairCeilings(
            source=self.source[at],
            target=self.target[at],
            ceiling=self.ceiling[at],
            has_models=self.has_models[at],
            methods=tuple(self.methods[number] for number in at.tolist()),
        )


def noises(session: Session) -> tuple[Noise, Noise]:
    """Noise of latency alone and of FRM, in the order of `panel.measures`; made once a session."""
    return session.once(_noises)


def _noises(session: Session) -> tuple[Noise, Noise]:
    panel, repeats, seed = session.panel, session.repeats, session.selection.seed
    latency, frm = measures(panel)
    flops = np.where(panel.flops > 0, panel.flops, np.nan)
    n_measured = 2 if has_memory(panel) else 1
    return (
        _noise(latency, panel, repeats, (slice(0, 1), np.ones_like(flops)), seed),
        _noise(frm, panel, repeats, (slice(0, n_measured), flops), seed),
    )


def _noise(
    measure: Measure,
    panel: Panel,
    repeats: Repeats,
    made_of: tuple[slice, Floats],
    seed: int,
) -> Noise:
    """The noise from the parts measured in each repeat, and the constant part."""
    measured, constant = made_of
    keys = panel.keys
    log_constant = np.log(constant)
    n_splits = splits_for(len(keys), repeats.processes.shape[-1])
    halves = np.empty((2, *measure.latency.shape, n_splits))
    lengthening = np.empty(measure.latency.shape)
    for column, key in enumerate(keys):
        parts = repeats.processes[measured, :, column]
        mine, longer = split_halves(parts, n_splits, platform_rng(seed, key, measure.name))
        halves[:, :, column] = mine + log_constant[:, None]
        lengthening[:, column] = np.where(np.isfinite(log_constant), longer, np.nan)
    sweeps, sessions = (
        np.log(medians[measured]).sum(axis=0) + log_constant[:, None, None]
        for medians in (repeats.sweeps, repeats.sessions)
    )
    return Noise(
        measure=measure,
        halves=halves,
        lengthening=lengthening,
        sweeps=sweeps,
        sessions=sessions,
        statistics=tuple(panel.platforms[STATISTIC]),
    )


def splits_for(n_platforms: int, n_repeats: int) -> int:
    """Number of splits: long halves differ less from split to split."""
    most = 200 if n_platforms <= FEW_PLATFORMS else 50
    return max(_LEAST_SPLITS, min(most, most * _FEW_REPEATS // n_repeats))


def platform_rng(seed: int, key: str, purpose: str) -> np.random.Generator:
    """A separate random stream per platform: another platform does not change its figures."""
    return np.random.default_rng([seed, zlib.crc32(f"{key} {purpose}".encode())])


def reliability_of(noise: Noise, models: Rows, column: int) -> Found:
    """Reliability of one platform over `models`, how it was found, and from how many of them.

    It is computed once: pairs with the same common models share a platform's figure.

    Pairs of sessions in which 5 models have two repeats: the mean rho is the generalisability
    coefficient of one session. Else halves of the newest sweep's repeats, else pairs of sweeps. NaN
    and `None` where no two rankings agree at all; the number is then that of models with 2 repeats
    or more.

    Source: Brennan 2001, 4.1: the coefficient is the expected correlation of two random sessions.
    """
    key = (models.tobytes(), column)
    if key not in noise.known:
        noise.known[key] = _reliability(noise, models, column)
    return noise.known[key]


def _reliability(noise: Noise, models: Rows, column: int) -> Found:
    between, n_between = retest_reliability(noise.sessions[models, column])
    if between > 0:
        return between, Method.SESSIONS, n_between
    n_split = int(np.isfinite(noise.lengthening[models, column]).sum())
    if n_between == 0:
        split = split_reliability(
            noise.halves[:, models, column], noise.lengthening[models, column]
        )
        if np.isfinite(split):
            return split, Method.SPLIT, n_split
        retest, n_compared = retest_reliability(noise.sweeps[models, column])
        if retest > 0:
            return retest, Method.RETEST, n_compared
    return float("nan"), None, n_split


def why_unreliable(noise: Noise, column: int) -> str:
    """Why `reliability_of` all of a platform's models is undefined."""
    n_models = int(np.isfinite(noise.lengthening[:, column]).sum())
    if n_models < MIN_MODELS:
        return (
            f"{count_of(n_models, 'model')} with {MIN_REPEATS_TO_SPLIT} repeats or more, at least "
            f"{MIN_MODELS} needed, and no two sweeps of as many"
        )
    sessions = np.isfinite(noise.sessions[:, column]).sum(axis=0)
    repeated = "sessions" if (sessions >= MIN_MODELS).sum() > 1 else "halves of its repeats"
    return f"{repeated} do not agree at all"


def platform_interval(noise: Noise, column: int, key: str, seed: int) -> tuple[float, float] | None:
    """95 % percentile bootstrap over models of the reliability; `None` below 9 models."""
    rng = platform_rng(seed, key, f"{noise.measure.name} interval")
    return reliability_interval(noise.halves[:, :, column], noise.lengthening[:, column], rng)


def pair_ceilings(noise: Noise, pairs: Sequence[Pair]) -> PairCeilings:
    """sqrt(reliability of source x reliability of target), over each pair's common models.

    None between a mean and a minimum: the same device could rank models differently by the two
    without any noise, so the bound would not separate the devices from the statistics.

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
            both = [method for _, method, _ in (found[i], found[j]) if method is not None]
            methods[where] = " / ".join(dict.fromkeys(both)) if len(both) > 1 else None
    source, target = sides
    ceiling = np.sqrt(np.maximum(source * target, 0.0))
    for where, (i, j) in enumerate(pairs):
        if are_unlike(noise.statistics[i], noise.statistics[j]):
            ceiling[where], methods[where] = np.nan, None
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
