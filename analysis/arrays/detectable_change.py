"""The smallest change that a comparison of process medians can find."""

import functools
import math

import numpy as np
from scipy import special

from fleetrank.analysis.arrays.equivalence import POWER, LogRatio
from fleetrank.analysis.arrays.significance import (
    MAX_EXACT,
    MIN_PROCESSES,
    smallest_significant_u,
)

_DRAWS = 4000
"""Random pairs of samples: the standard error of the shift is about 1 % of it."""


def detectable_ratio(found: LogRatio, n_a: int, n_b: int, alpha: float) -> float | None:
    """The smallest ratio that the rank test finds with probability `POWER` at this noise.

    Its inverse is the largest ratio below 1. `None` if the test can find nothing: too few
    processes for this level, two-sided. Log latencies of processes are taken as normal.
    """
    if min(n_a, n_b) < MIN_PROCESSES:
        return None
    shift = _detectable_shift(n_a, n_b, alpha)
    spread = math.sqrt((found.variance_a + found.variance_b) / 2)
    return None if shift is None else math.exp(shift * spread)


@functools.lru_cache(maxsize=256)
def _detectable_shift(n_a: int, n_b: int, alpha: float) -> float | None:
    """The shift in standard deviations that is found with probability `POWER`.

    By random samples, because the test is exact and its levels are few; beyond `MAX_EXACT` values
    by the normal approximation. Source: Noether 1987, with the efficiency of Lehmann 1975, 2.4.
    """
    if n_a + n_b > MAX_EXACT:
        needed = special.ndtri(1 - alpha / 2) + special.ndtri(POWER)
        return float(needed * math.sqrt(math.pi / 3 * (1 / n_a + 1 / n_b)))
    u = smallest_significant_u(n_a, n_b, alpha)
    if u is None:
        return None
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(_DRAWS, n_a, 1)), rng.normal(size=(_DRAWS, 1, n_b))
    # A shift of b puts every pair whose difference is smaller than it into the right order.
    differences = np.sort((a - b).reshape(_DRAWS, -1), axis=1)
    return float(np.quantile(differences[:, u - 1], POWER))
