"""Array functions that check a data set; values are logarithms, NaN where one is missing."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import stats

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.stored.columns import ROUNDED_SENTINELS, SENTINELS

Mask = npt.NDArray[np.bool_]

PROPORTIONAL_SHARE = 0.05
"""Two devices whose every ratio lies within +-5 % are one device.

Source: OneProxy's eagle_i7 and eagle_gtx agree so over all models, a CPU and a GPU; processes of
one device differ by 4 to 6 %.
"""
MIN_COMMON = 5
"""Fewer ratios can agree by chance; a rank correlation needs the same number of models."""
MIN_PLATFORMS = 3
"""A median needs three platforms: that of two is between them."""
OUTLIER_SCALES = 3.5
"""Robust standard deviations beyond which a residual is an outlier.

Source: Iglewicz and Hoaglin 1993, modified z-score.
"""
OUTLIER_FACTOR = 2.0
"""Architecture explains a factor of up to 2; observed slow states were 3.5 to 7 times slower."""
_MAD_TO_STD = 1.4826
_SLIP = np.log(1e3)
_SLIP_TOLERANCE = np.log(2.5)
"""Tolerance around a factor of 10^3 or 10^6: with more, errors of the fit would look like units."""
_POLISH_ROUNDS = 10
"""Median polish converges in a few iterations."""
_SIEVE = 32
"""Pairs of platforms are first checked on this many models; few different pairs pass."""
_MIN_SLOPE = 9
"""A slope is fitted from this many models on."""
_MAX_FITTED = 100
"""Points used to fit a line; the time grows with their square, and more do not improve the fit."""


def duplicate_pairs(logs: Floats) -> list[tuple[int, int, int, float, float]]:
    """Platforms whose values are proportional over all common models.

    Args:
        logs: (n_models, n_platforms).

    Returns:
        For each pair its two columns, the number of common models (at least 5), the median ratio
        second / first, and the largest deviation from it as a share, at most 0.05.
    """
    found = []
    few = logs[:: max(1, logs.shape[0] // _SIEVE)]
    for first in range(logs.shape[1] - 1):
        differences = few[:, first + 1 :] - few[:, [first]]
        common = np.isfinite(differences)
        highest = np.where(common, differences, -np.inf).max(axis=0)
        lowest = np.where(common, differences, np.inf).min(axis=0)
        # A fast, tolerant check; pairs that pass are then checked on every model.
        for offset in np.flatnonzero(highest - lowest <= 2.1 * PROPORTIONAL_SHARE):
            second = first + 1 + int(offset)
            ratios = np.exp(logs[:, second] - logs[:, first])
            ratios = ratios[np.isfinite(ratios)]
            if ratios.size < MIN_COMMON:
                continue
            middle = float(np.median(ratios))
            deviation = float(np.abs(ratios / middle - 1).max())
            if deviation <= PROPORTIONAL_SHARE:
                found.append((first, second, ratios.size, middle, deviation))
    return found


def median_platform(logs: Floats, groups: npt.NDArray[np.int64]) -> Floats:
    """Log value of each model on the median platform, up to a constant; (n_models,).

    Tukey's median polish: platforms may lack models. The median over platforms is taken inside
    each group and then over groups, so that a hundred phones do not outweigh six GPUs. NaN for a
    model on fewer than 3 platforms.

    Args:
        logs: (n_models, n_platforms).
        groups: number of the group of each platform, (n_platforms,).
    """
    effect = np.zeros(logs.shape[0])
    for _ in range(_POLISH_ROUNDS):
        level = _median(logs - effect[:, None], axis=0)
        above = logs - level[None, :]
        parts = [_median(above[:, groups == group], axis=1) for group in np.unique(groups)]
        effect = np.nan_to_num(_median(np.column_stack(parts), axis=1))
    effect[np.isfinite(logs).sum(axis=1) < MIN_PLATFORMS] = np.nan
    return effect


def median_platforms(logs: Floats, tiers: Sequence[str]) -> list[Floats]:
    """The median platform to compare each platform with, of its tier, (n_models,) each.

    Of all tiers if its tier has fewer than 3 platforms.

    Args:
        logs: (n_models, n_platforms).
        tiers: of each platform.
    """
    names, member = np.unique(np.array(tiers), return_inverse=True)
    of_all = median_platform(logs, member)
    of_tier = [
        median_platform(logs[:, member == tier], member[member == tier])
        if (member == tier).sum() >= MIN_PLATFORMS
        else of_all
        for tier in range(names.size)
    ]
    return [of_tier[tier] for tier in member]


def fit_residuals(values: Floats, reference: Floats) -> tuple[Floats, float | None]:
    """Distances of a platform's log values from its line on the median platform, and their scale.

    Siegel's repeated medians: up to half of the values may be wrong. Below 9 models the slope is
    1, since two wrong values among six can tilt any line. The scale is 1.4826 x the median
    absolute residual. All NaN and `None` below 5 models.

    Args:
        values: logs of one platform, (n_models,).
        reference: of `median_platform`, (n_models,).
    """
    residuals = np.full(values.size, np.nan)
    known = np.flatnonzero(np.isfinite(values) & np.isfinite(reference))
    if known.size < MIN_COMMON:
        return residuals, None
    x, y = reference[known], values[known]
    slope, intercept = _line(x, y)
    residuals[known] = y - (slope * x + intercept)
    return residuals, float(_MAD_TO_STD * np.median(np.abs(residuals[known])))


def outliers(residuals: Floats, scale: float) -> Mask:
    """Whether a value is more than 3.5 scales and a factor of 2 away from the line."""
    bound = max(OUTLIER_SCALES * scale, float(np.log(OUTLIER_FACTOR)))
    is_far: Mask = np.abs(residuals) > bound
    return is_far


def unit_slips(residuals: Floats) -> npt.NDArray[np.int64]:
    """Powers of 10 by which values seem to be in another unit: -6, -3, 0 (none), 3 or 6."""
    known = np.nan_to_num(residuals)
    thousands = np.clip(np.rint(known / _SLIP), -2, 2)
    is_slip = (thousands != 0) & (np.abs(known - thousands * _SLIP) < _SLIP_TOLERANCE)
    return np.where(is_slip, 3 * thousands, 0).astype(np.int64)


def sentinels(values: Floats, units: tuple[float, ...]) -> Mask:
    """Whether values are codes for 'missing': -1, 0 or the largest integers, in one of the units.

    Args:
        values: any shape, not logarithms.
        units: what one of each unit is in the unit of `values`.
    """
    found: Mask = np.zeros(values.shape, dtype=np.bool_)
    for codes, tolerance in ((SENTINELS, 1e-12), (ROUNDED_SENTINELS, 1e-9)):
        marks = np.outer(codes, units).ravel()
        found |= np.isclose(values[..., None], marks, rtol=tolerance, atol=0.0).any(axis=-1)
    return found


def tied_share(values: Floats) -> float:
    """Share of values that equal another one; NaN is ignored, 0 without values."""
    known = values[np.isfinite(values)]
    if known.size == 0:
        return 0.0
    _, counts = np.unique(known, return_counts=True)
    return float(counts[counts > 1].sum() / known.size)


def _line(x: Floats, y: Floats) -> tuple[float, float]:
    order = np.lexsort((y, x))
    if order.size > _MAX_FITTED:
        order = order[np.linspace(0, order.size - 1, _MAX_FITTED).round().astype(np.int64)]
    x, y = x[order], y[order]
    if x.size < _MIN_SLOPE or np.ptp(x) == 0:
        return 1.0, float(np.median(y - x))
    # Two equal x have no slope; SciPy leaves such pairs out.
    fit = stats.siegelslopes(y, x)
    return float(fit.slope), float(np.median(y - fit.slope * x))


def _median(values: Floats, axis: int) -> Floats:
    """Median that ignores NaN; NaN if all are NaN, without NumPy's warning."""
    ordered = np.sort(values, axis=axis)
    n = np.isfinite(values).sum(axis=axis, keepdims=True)
    low = np.take_along_axis(ordered, np.maximum((n - 1) // 2, 0), axis=axis)
    high = np.take_along_axis(ordered, np.maximum(n // 2, 0).clip(0, values.shape[axis] - 1), axis)
    middle: Floats = np.where(n > 0, (low + high) / 2, np.nan).squeeze(axis)
    return middle
