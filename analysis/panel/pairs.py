"""Pairs of platforms by their common models, and the ranks of many pairs at once."""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.bootstrap import (
    resampled_units,
)
from fleetrank.analysis.arrays.frm import (
    null_units,
    residual_null_units,
)
from fleetrank.analysis.arrays.ranking import (
    Floats,
    partial_units,
    products,
    rank_units,
)
from fleetrank.analysis.panel.panel import Measure
from fleetrank.foundation.wording import count_of

Pair = tuple[int, int]
"""Column numbers of source and target."""

_FEW_PLATFORMS = 50
"""Up to this many platforms a pair is cheap, so many draws are made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """Number of random draws for the figures."""

    bootstrap: int
    permutation: int
    null: int
    residual_null: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
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


def draws_for(pairs: Sequence[Pair]) -> Draws:
    """Many draws for few platforms; at least 200 for a null."""
    if len({column for pair in pairs for column in pair}) <= _FEW_PLATFORMS:
        return Draws(bootstrap=1000, permutation=9999, null=1000, residual_null=1000)
    return Draws(bootstrap=400, permutation=999, null=200, residual_null=200)


def blocks(present: npt.NDArray[np.bool_], pairs: Sequence[Pair]) -> Iterator[Block]:
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
        yield Block(
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


def block_rhos(measure: Measure, block: Block) -> Floats:
    """Rho, or partial rho, of the block's pairs over their common models; NaN where undefined."""
    units = rank_units(block_values(measure, block))
    if measure.given is not None:
        units = partial_units(units, _given_unit(measure.given, block))
    rhos: Floats = products(units)[block.source, block.target]
    return rhos


def block_resamples(
    measure: Measure, block: Block, counts: npt.NDArray[np.int64]
) -> Iterator[Floats]:
    """Unit columns of the block's platforms in resamples of its models, (draws, n_models)."""
    values = block_values(measure, block)
    if measure.given is None:
        yield from resampled_units(values, counts)
        return
    with_given = np.column_stack([values, measure.given[block.models]])
    for units in resampled_units(with_given, counts):
        yield partial_units(units[..., :-1], units[..., -1:])


def block_values(measure: Measure, block: Block) -> Floats:
    """What ranks the block's models on its platforms, (n_models, n_platforms)."""
    values: Floats = measure.values[np.ix_(block.models, block.columns)]
    return values


def _given_unit(given: Floats, block: Block) -> Floats:
    return rank_units(given[block.models, None])


def null_draws(measure: Measure, block: Block, draws: Draws, seed: int) -> Iterator[Floats]:
    """Unit columns of the block's platforms with permuted latencies; see `frm.null_units`."""
    grid = np.ix_(block.models, block.columns)
    rng = block_rng(measure, block, seed, "null")
    units = null_units(measure.rest[grid], measure.latency[grid], draws.null, rng)
    return _partial(measure, block, units)


def residual_draws(
    measure: Measure, block: Block, draws: Draws, seed: int
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
        measure.rest[grid], measure.latency[grid], flops, draws.residual_null, rng
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


def _partial(measure: Measure, block: Block, units: Iterator[Floats]) -> Iterator[Floats]:
    if measure.given is None:
        return units
    given = _given_unit(measure.given, block)
    # If FLOPs explain a permuted ranking completely (1 in 60 with five models), its rho counts as
    # 0; for a measured ranking it is undefined.
    return (np.nan_to_num(partial_units(some, given)) for some in units)


def block_rng(measure: Measure, block: Block, seed: int, purpose: str) -> np.random.Generator:
    """A separate random stream per purpose: a figure does not depend on earlier draws."""
    models = zlib.crc32(block.models.tobytes())
    return np.random.default_rng([seed, models, zlib.crc32(f"{measure.name}/{purpose}".encode())])
