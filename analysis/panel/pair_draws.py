"""Rho of pairs of platforms in random draws, made once for the pairs and for means over them."""

from collections.abc import Iterable, Sequence
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.bootstrap import resample_counts
from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats, block_size
from fleetrank.analysis.panel.pairs import (
    Block,
    Pair,
    block_resamples,
    block_rhos,
    block_rng,
    blocks,
    draws_for,
    null_draws,
    residual_draws,
)
from fleetrank.analysis.panel.panel import Measure
from fleetrank.analysis.panel.selected_pairs import MAX_LISTED_PAIRS

Units = Iterable[Floats]


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
        self.draws = draws_for(pairs)
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

        `pairs.residual_draws` says where.
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


def _rhos_of(units: Units, block: Block) -> Floats:
    """Rho of the block's pairs in every draw, (draws, n_pairs), from blocks of unit columns."""
    size = block.columns.size
    # All products of two platforms by BLAS cost less than some of them without it.
    if size**2 <= 20 * block.where.size:
        rhos = [(np.swapaxes(some, 1, 2) @ some)[:, block.source, block.target] for some in units]
    else:
        rhos = [_some_products(some, block) for some in units]
    clipped: Floats = np.clip(np.concatenate(rhos), -1.0, 1.0)
    return clipped


def _some_products(units: Floats, block: Block) -> Floats:
    step = block_size(block.models.size, block.where.size)
    return np.concatenate(
        [
            np.einsum("dmp,dmp->dp", some[:, :, block.source], some[:, :, block.target])
            for some in (units[start : start + step] for start in range(0, len(units), step))
        ]
    )


def sums_of(units: Units, part: Block, weights: Floats) -> Floats:
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
