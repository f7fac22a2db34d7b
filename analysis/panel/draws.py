"""Pairs of columns by their common models: their rho, and their rho in random draws.

A draw is a permutation or a resample of the models; it is made once for the pairs and for every
mean over them.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.bootstrap import resample_counts, resampled_units
from fleetrank.analysis.arrays.frm import null_units, residual_null_units
from fleetrank.analysis.arrays.ranking import (
    MIN_MODELS,
    Floats,
    block_size,
    partial_units,
    products,
    rank_units,
)
from fleetrank.analysis.panel.conditions import MAX_LISTED_PAIRS, Pair
from fleetrank.analysis.panel.panel import Measure
from fleetrank.foundation.wording import count_of

_FEW_PLATFORMS = 50
"""Up to this many platforms a pair is cheap, so many draws are made."""
_FEW_VALUES = 20_000
"""Models x platforms of a draw: 50,000 are ranked in 5 ms, so that 9,999 of them take a minute."""
Units = Iterable[Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """Number of random draws for the figures."""

    bootstrap: int
    permutation: int
    null: int
    residual: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PairBlock:
    """Pairs that share the same common models.

    Attributes:
        where: positions of its pairs in the caller's sequence.
        models: row numbers of the common models.
        columns: platforms that occur; `source` and `target` count within them.
    """

    where: npt.NDArray[np.int64]
    models: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int64]
    source: npt.NDArray[np.int64]
    target: npt.NDArray[np.int64]


def draws_for(pairs: Sequence[Pair], n_models: int = 0) -> Draws:
    """Many draws for few platforms and models; at least 200 for a null."""
    n_platforms = len({column for pair in pairs for column in pair})
    if n_platforms <= _FEW_PLATFORMS and n_platforms * n_models <= _FEW_VALUES:
        return Draws(bootstrap=1000, permutation=9999, null=1000, residual=1000)
    return Draws(bootstrap=400, permutation=999, null=200, residual=200)


def blocks(present: npt.NDArray[np.bool_], pairs: Sequence[Pair]) -> Iterator[PairBlock]:
    """Groups pairs by the models present (n_models, n_platforms) on both sides.

    Ranks are taken inside the pair; where nothing is missing, one block holds all pairs and the
    platforms are ranked once.
    """
    if not pairs:
        return
    sides = np.array(pairs, dtype=np.int64)
    patterns, member = _common_models(present, sides)
    for number, mask in enumerate(patterns):
        where = np.flatnonzero(member == number)
        columns, inside = np.unique(sides[where], return_inverse=True)
        inside = inside.reshape(-1, 2)
        yield PairBlock(
            where=where,
            models=np.flatnonzero(mask),
            columns=columns,
            source=inside[:, 0],
            target=inside[:, 1],
        )


def _common_models(
    present: npt.NDArray[np.bool_], sides: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """The distinct sets of common models (n_sets, n_models) and which of them each pair has.

    Platforms are grouped first: a million pairs come from few kinds of platform.
    """
    kinds, kind_of = np.unique(present.T, axis=0, return_inverse=True)
    both = np.sort(kind_of.reshape(-1)[sides], axis=1)
    codes, code_of = np.unique(both[:, 0] * len(kinds) + both[:, 1], return_inverse=True)
    common = kinds[codes // len(kinds)] & kinds[codes % len(kinds)]
    patterns, pattern_of = np.unique(common, axis=0, return_inverse=True)
    return patterns, pattern_of.reshape(-1)[code_of.reshape(-1)]


def block_rhos(measure: Measure, block: PairBlock) -> Floats:
    """Rho, or partial rho, of the block's pairs over their common models; NaN where undefined."""
    units = rank_units(block_values(measure, block))
    if measure.given is not None:
        units = partial_units(units, _given_unit(measure.given, block))
    rhos: Floats = products(units)[block.source, block.target]
    return rhos


def block_resamples(
    measure: Measure, block: PairBlock, counts: npt.NDArray[np.int64]
) -> Iterator[Floats]:
    """Unit columns of the block's platforms in resamples of its models, (draws, n_models)."""
    values = block_values(measure, block)
    if measure.given is None:
        yield from resampled_units(values, counts)
        return
    with_given = np.column_stack([values, measure.given[block.models]])
    for units in resampled_units(with_given, counts):
        yield partial_units(units[..., :-1], units[..., -1:])


def block_values(measure: Measure, block: PairBlock) -> Floats:
    """What ranks the block's models on its platforms, (n_models, n_platforms)."""
    values: Floats = measure.values[np.ix_(block.models, block.columns)]
    return values


def _given_unit(given: Floats, block: PairBlock) -> Floats:
    return rank_units(given[block.models, None])


def null_draws(measure: Measure, block: PairBlock, draws: Draws, seed: int) -> Iterator[Floats]:
    """Unit columns of the block's platforms with permuted latencies; see `frm.null_units`."""
    grid = np.ix_(block.models, block.columns)
    rng = block_rng(measure, block, seed, "null")
    units = null_units(measure.rest[grid], measure.latency[grid], draws.null, rng)
    return _partial(measure, block, units)


def residual_draws(
    measure: Measure, block: PairBlock, draws: Draws, seed: int
) -> Iterator[Floats] | None:
    """Unit columns in which only what FLOPs explain of latency transfers.

    `None` without latency, or where FLOPs of a model are unknown: see `why_no_residual_null`. The
    fit is over the models of the block. See `frm.residual_null_units`.
    """
    if not measure.has_latency or measure.flops is None:
        return None
    flops = measure.flops[block.models]
    if np.isnan(flops).any():
        return None
    grid = np.ix_(block.models, block.columns)
    rng = block_rng(measure, block, seed, "residual null")
    units = residual_null_units(
        measure.rest[grid], measure.latency[grid], flops, draws.residual, rng
    )
    return _partial(measure, block, units)


def why_no_residual_null(measure: Measure, models: npt.NDArray[np.int64]) -> str | None:
    """Which FLOPs are missing for the residual null; `None` if none are, or none are used."""
    if not measure.has_latency or measure.flops is None:
        return None
    lacking = int(np.isnan(measure.flops[models]).sum())
    if lacking == 0:
        return None
    return f"no residual null: {lacking} of {count_of(models.size, 'model')} without FLOPs"


def _partial(measure: Measure, block: PairBlock, units: Iterator[Floats]) -> Iterator[Floats]:
    if measure.given is None:
        return units
    given = _given_unit(measure.given, block)
    # If FLOPs explain a permuted ranking completely (1 in 60 with five models), its rho counts as
    # 0; for a measured ranking it is undefined.
    return (np.nan_to_num(partial_units(some, given)) for some in units)


def block_rng(measure: Measure, block: PairBlock, seed: int, purpose: str) -> np.random.Generator:
    """A separate random stream per purpose: a figure does not depend on earlier draws."""
    models = zlib.crc32(block.models.tobytes())
    return np.random.default_rng([seed, models, zlib.crc32(f"{measure.name}/{purpose}".encode())])


class Purpose(StrEnum):
    """What draws are for; a name is part of the seed of its random stream."""

    NULL = "null"
    """Latencies are permuted."""
    RESIDUAL_NULL = "residual null"
    """Only what FLOPs explain of latency transfers."""
    INTERVAL = "bootstrap"
    """Models are resampled, for the interval of a pair."""
    MEAN_INTERVAL = "joint bootstrap"
    """Models are resampled, for the interval of a mean."""


class PairDraws:
    """Rho of pairs, measured and in draws; each part is made on first use and kept.

    One object serves the pairs and the means of several groups of them: ranking the draws of a
    platform costs the most, and is done once. Nothing is kept above `MAX_LISTED_PAIRS` pairs.

    Attributes:
        parts: the pairs by their common models.
        rho: (n_pairs,), NaN where undefined.
    """

    def __init__(self, measure: Measure, pairs: Sequence[Pair], seed: int) -> None:
        """Ranks the measured values; no draw is made yet."""
        self.measure = measure
        self.seed = seed
        self.draws = draws_for(pairs, measure.values.shape[0])
        self.parts = tuple(blocks(np.isfinite(measure.values), pairs))
        self.rho = np.full(len(pairs), np.nan)
        for part in self.parts:
            if part.models.size >= MIN_MODELS:
                self.rho[part.where] = block_rhos(measure, part)
        self._is_kept = len(pairs) <= MAX_LISTED_PAIRS
        self._rhos: dict[tuple[Purpose, int], Floats | None] = {}

    def counts(self, number: int, n_models: int, purpose: Purpose) -> npt.NDArray[np.int64]:
        """How often each model is drawn, (draws, n_models), from the stream of a part."""
        rng = block_rng(self.measure, self.parts[number], self.seed, purpose)
        return resample_counts(n_models, self.draws.bootstrap, rng)

    def rhos(self, purpose: Purpose, number: int) -> Floats | None:
        """Rho of the pairs of a part in every draw, (draws, n_pairs); `None` if nothing is drawn.

        `residual_draws` says where.
        """
        key = (purpose, number)
        if key not in self._rhos:
            units = self._units(purpose, number)
            self._rhos[key] = None if units is None else _rhos_of(units, self.parts[number])
        return self._rhos[key]

    def sums(self, purpose: Purpose, number: int, weights: Floats) -> Floats | None:
        """Sum over the pairs of a part of weight (n_pairs,) x rho in every draw, (draws,)."""
        if not self._is_kept:
            units = self._units(purpose, number)
            return None if units is None else sums_of(units, self.parts[number], weights)
        rhos = self.rhos(purpose, number)
        # A pair without weight is left out: its rho may be undefined.
        used = np.flatnonzero(weights)
        return None if rhos is None else rhos[:, used] @ weights[used]

    def _units(self, purpose: Purpose, number: int) -> Units | None:
        part = self.parts[number]
        if purpose is Purpose.NULL:
            return null_draws(self.measure, part, self.draws, self.seed)
        if purpose is Purpose.RESIDUAL_NULL:
            return residual_draws(self.measure, part, self.draws, self.seed)
        counts = self.counts(number, part.models.size, purpose)
        return block_resamples(self.measure, part, counts)


def _rhos_of(units: Units, block: PairBlock) -> Floats:
    """Rho of the block's pairs in every draw, (draws, n_pairs), from blocks of unit columns."""
    size = block.columns.size
    # All products of two platforms by BLAS cost less than some of them without it.
    if size**2 <= 20 * block.where.size:
        rhos = [(np.swapaxes(some, 1, 2) @ some)[:, block.source, block.target] for some in units]
    else:
        rhos = [_some_products(some, block) for some in units]
    clipped: Floats = np.clip(np.concatenate(rhos), -1.0, 1.0)
    return clipped


def _some_products(units: Floats, block: PairBlock) -> Floats:
    step = block_size(block.models.size, block.where.size)
    return np.concatenate(
        [
            np.einsum("dmp,dmp->dp", some[:, :, block.source], some[:, :, block.target])
            for some in (units[start : start + step] for start in range(0, len(units), step))
        ]
    )


def sums_of(units: Units, part: PairBlock, weights: Floats) -> Floats:
    """Sum over the block's pairs of weight x rho in every draw, (draws,).

    `weights` is (n_pairs,). A platform without weight is left out: its column may be constant and
    therefore undefined.
    """
    size = part.columns.size
    share = np.zeros((size, size))
    np.add.at(share, (part.source, part.target), weights / 2)
    share += share.T
    used = np.flatnonzero(share.any(axis=0))
    # Columns that weigh alike up to a factor are summed, not multiplied singly: between two tiers
    # of complete measurements two sums are left.
    rows = share[np.ix_(used, used)]
    scale = rows.sum(axis=1)
    profiles = np.round(rows / scale[:, None], 12)
    _, first, member = np.unique(profiles, axis=0, return_index=True, return_inverse=True)
    joint = rows[np.ix_(first, first)] / np.outer(scale[first], scale[first])
    factor = (member.reshape(-1, 1) == np.arange(first.size)) * scale[:, None]
    sums = []
    for some in units:
        flat = some[:, :, used] @ factor
        sums.append(((flat @ joint) * flat).sum(axis=(1, 2)))
    return np.concatenate(sums)
