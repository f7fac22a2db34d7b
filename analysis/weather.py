"""What the host did during rounds, and whether their comparisons can be trusted.

An effect that all cells of a block share is subtracted from each of them, so it does no harm by
itself. But models react differently to the same disturbance: a neighbour that uses memory bandwidth
slows down a large model more. So a round in which the host changed much is doubtful.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from fleetrank.analysis.round_effects import Floats, block_effects

if TYPE_CHECKING:
    from fleetrank.analysis.rounds import MeasuredRound

MIN_CELLS, MIN_BLOCKS = 2, 4
"""Fewer do not separate the host's effect from that of a cell, or give no spread."""
MOST_SPREAD = MOST_REST = 0.08
"""By `benchmarks/round_weather.py`, rounds of 5 blocks on one core whose neighbour cores were busy:
without an injected neighbour 1 of 20 is above it (3 of 20 above 5 %), with a neighbour on the same
core 6 of 6. Smaller neighbours are rarely found by either limit; `docs/measuring.md` has them."""
MOST_DISTURBED = 0.2
"""Share of a sweep's rounds: Huber's weights limit the effect of so many."""


class RoundVerdict(StrEnum):
    """Whether the host disturbed comparisons."""

    VALID = "valid"
    DISTURBED = "disturbed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """What the host did in one round; figures are logarithms, `None` if they are not known.

    Attributes:
        spread: standard deviation of the effects of blocks, without what the rest adds to it.
        jump: largest change of the effect from one block to the next.
        rest: standard deviation of what remains of a block of one cell.
        reason: why the verdict is not `valid`.
    """

    verdict: RoundVerdict
    spread: float | None = None
    jump: float | None = None
    rest: float | None = None
    reason: str | None = None


def weather_of(one: "MeasuredRound") -> Weather:
    """The host's effects in a round, and the verdict."""
    return _weather(one.blocks, one.rests)


def weather_of_medians(medians: Sequence[Sequence[float]]) -> Weather:
    """The same from the medians of the blocks of each cell; one has as many as the shortest."""
    n_blocks = min(map(len, medians))
    _, effects, rests = block_effects(np.log([one[:n_blocks] for one in medians]))
    return _weather(effects, rests)


def _weather(effects: Floats, rests: Floats) -> Weather:
    """From the effect of each block, (n_blocks,), and what remains, (n_cells, n_blocks)."""
    is_complete = np.isfinite(rests).all(axis=0)
    n_cells, n_blocks = len(rests), int(is_complete.sum())
    if n_cells < MIN_CELLS or n_blocks < MIN_BLOCKS:
        reason = f"fewer than {MIN_CELLS} models or {MIN_BLOCKS} blocks"
        return Weather(verdict=RoundVerdict.UNKNOWN, reason=reason)
    blocks, rests = effects[is_complete], rests[:, is_complete]
    variance = float((rests**2).sum()) / ((n_cells - 1) * (n_blocks - 1))
    spread = math.sqrt(max(0.0, float(blocks.var(ddof=1)) - variance / n_cells))
    rest = math.sqrt(variance)
    reasons = [
        text
        for is_much, text in (
            (spread > MOST_SPREAD, "the host changed between blocks"),
            (rest > MOST_REST, "models changed differently"),
        )
        if is_much
    ]
    return Weather(
        verdict=RoundVerdict.DISTURBED if reasons else RoundVerdict.VALID,
        spread=spread,
        jump=float(np.abs(np.diff(blocks)).max()),
        rest=rest,
        reason="; ".join(reasons) or None,
    )


def verdict_of_rounds(verdicts: Sequence[RoundVerdict]) -> RoundVerdict:
    """The verdict on the comparisons of several rounds of one sweep on one device."""
    counts = Counter(verdicts)
    known = counts[RoundVerdict.VALID] + counts[RoundVerdict.DISTURBED]
    if 2 * known < len(verdicts) or known == 0:
        return RoundVerdict.UNKNOWN
    if counts[RoundVerdict.DISTURBED] > MOST_DISTURBED * known:
        return RoundVerdict.DISTURBED
    return RoundVerdict.VALID
