"""Array functions that find values in another unit; values are logarithms, NaN where missing."""

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.statistics.audit.audit import (
    MIN_COMMON,
    MIN_PLATFORMS,
    OUTLIER_SCALES,
    Mask,
    fit_residuals,
    median_of,
    median_platform,
)
from fleetrank.analysis.stored.columns import ROUNDED_SENTINELS, SENTINELS

MIB_PER_MB = 2**20 / 1e6
"""1.048576: a figure in MB that was read as MiB is too large by it."""
_SLIP = np.log(1e3)
_SLIP_TOLERANCE = np.log(2.5)
"""Tolerance around a factor of 10^3 or 10^6: with more, errors of the fit would look like units."""
_LEVEL_TOLERANCE = np.log(10.0)
"""The same for the level of a whole platform or model, which differs more inside a tier.

It also covers 1024 and 2^20, which are too near to 10^3 and 10^6 to be separated here.
"""
_MIB_TOLERANCE = 0.012
"""A quarter of log(1.048576); figures with more noise cannot show that factor."""
Powers = npt.NDArray[np.int64]
"""Powers of 10 by which values seem to be in another unit: -6, -3, 0 (none), 3 or 6."""


def unit_slips(residuals: Floats) -> Powers:
    """Powers of 10 by which values seem to be in another unit: -6, -3, 0 (none), 3 or 6."""
    return _powers(residuals, _SLIP_TOLERANCE)


def platform_slips(logs: Floats, groups: npt.NDArray[np.int64]) -> tuple[Powers, Floats]:
    """Powers of 10 of whole platforms against the others of their group, and their log factors.

    A platform's level is the median of its values over the median platform. It is compared with
    the levels of its group, which needs 3 platforms.

    Args:
        logs: (n_models, n_platforms).
        groups: number of the group of each platform, such as its tier, (n_platforms,).
    """
    above = logs - median_platform(logs, groups)[:, None]
    is_known = np.isfinite(above).sum(axis=0) >= MIN_COMMON
    levels = np.where(is_known, median_of(above, axis=0), np.nan)
    powers, offsets = np.zeros(levels.size, dtype=np.int64), np.full(levels.size, np.nan)
    for group in np.unique(groups):
        inside = np.flatnonzero((groups == group) & is_known)
        if inside.size >= MIN_PLATFORMS:
            powers[inside], offsets[inside] = _isolated(levels[inside])
    return powers, offsets


def model_slips(
    logs: Floats, flops: Floats, groups: npt.NDArray[np.int64]
) -> tuple[Powers, Floats]:
    """Powers of 10 of models on all their platforms against FLOPs, and their log factors.

    A model without FLOPs is compared with the other models' latencies, which shows only an error
    that is larger than their range.

    Args:
        logs: (n_models, n_platforms).
        flops: (n_models,), not logarithms.
        groups: number of the group of each platform, (n_platforms,).
    """
    effect = median_platform(logs, groups)
    residuals, scale = fit_residuals(effect, np.log(np.where(flops > 0, flops, np.nan)))
    powers = _powers(residuals, _LEVEL_TOLERANCE)
    powers[np.abs(np.nan_to_num(residuals)) <= OUTLIER_SCALES * (scale or 0.0)] = 0
    known = np.flatnonzero(np.isfinite(effect))
    if known.size >= MIN_COMMON:
        far, offsets = _isolated(effect[known])
        alone = np.isnan(residuals[known])
        powers[known[alone]], residuals[known[alone]] = far[alone], offsets[alone]
    return powers, residuals


def mib_slips(logs: Floats) -> Floats:
    """Offsets near log(1.048576) of platforms whose memory equals that of the others; else NaN.

    Args:
        logs: (n_models, n_platforms), memory of platforms that count it in one way.
    """
    found = np.full(logs.shape[1], np.nan)
    if logs.shape[1] < MIN_PLATFORMS:
        return found
    above = logs - median_platform(logs, np.zeros(logs.shape[1], dtype=np.int64))[:, None]
    n = np.isfinite(above).sum(axis=0)
    offsets = np.where(n >= MIN_COMMON, median_of(above, axis=0), np.nan)
    offsets -= median_of(offsets[:, None], axis=0)
    noise = median_of(np.abs(above - median_of(above, axis=0)), axis=0)
    if not (np.abs(offsets) <= _MIB_TOLERANCE).sum() > np.isfinite(offsets).sum() / 2:
        return found
    is_slip = (noise <= np.log(MIB_PER_MB) / 2) & is_mib(offsets)
    found[is_slip] = offsets[is_slip]
    return found


def is_mib(logs: Floats) -> Mask:
    """Whether factors are those between MB and MiB."""
    near: Mask = np.abs(np.abs(logs) - np.log(MIB_PER_MB)) <= _MIB_TOLERANCE
    return near


def common_slip(changes: Floats) -> float | None:
    """The factor by which most values changed, if it is one between units; `None` otherwise.

    Args:
        changes: logarithms of new / old, (n_models,); at least 5.
    """
    if changes.size < MIN_COMMON:
        return None
    middle = float(np.median(changes))
    is_common = np.median(np.abs(changes - middle)) <= _MIB_TOLERANCE
    known = np.log([MIB_PER_MB, 1e3, 2.0**10, 1e6, 2.0**20])
    is_slip = np.abs(np.abs(middle) - known).min() <= _MIB_TOLERANCE
    return float(np.exp(middle)) if is_common and is_slip else None


def _isolated(levels: Floats) -> tuple[Powers, Floats]:
    """Powers of levels near 10^3 or 10^6 times the median with a gap of 31 to all others.

    At most a third of them (or one) can be so: more are another kind of device.
    """
    # Of three levels, the median is a usual one even if another is wrong.
    offsets: Floats = levels - np.median(levels)
    powers = _powers(offsets, _LEVEL_TOLERANCE)
    usual = levels[powers == 0]
    if usual.size == 0 or (powers != 0).sum() > max(1, levels.size // 3):
        return np.zeros_like(powers), offsets
    gaps = np.abs(levels[:, None] - usual[None, :]).min(axis=1)
    return np.where(gaps > _SLIP / 2, powers, 0), offsets


def _powers(residuals: Floats, tolerance: float) -> Powers:
    known = np.nan_to_num(residuals)
    thousands = np.clip(np.rint(known / _SLIP), -2, 2)
    is_slip = (thousands != 0) & (np.abs(known - thousands * _SLIP) < tolerance)
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
