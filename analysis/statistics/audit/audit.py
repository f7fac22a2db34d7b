"""Array functions that check a data set; values are logarithms, NaN where one is missing."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.ranking import Floats, spearman_matrix

Mask = npt.NDArray[np.bool_]
PROPORTIONAL_SHARE = 0.05
"""Two devices of which 95 % of the ratios lie within +-5 % are one device.

Source: OneProxy's eagle_i7 and eagle_gtx agree so over all models, a CPU and a GPU; processes of
one device differ by 4 to 6 %.
"""
_EXCEPTIONS = 0.05
"""Share of ratios that may be wrong, such as a row in a slow state; at least one from 9 models on.

Below 9 models no ratio may be wrong: a single one would be an eighth of the evidence or more.
"""
_NOISY_SHARE = 0.15
"""Largest deviation of the 95 % for noisy copies, whose ratio is 1 and whose scale is under 5 %.

A copy with 3 % noise has ratios with a standard deviation of up to 1.41 x 3 = 4.2 %.
"""
MIN_RHO = 0.95
"""Lower, the models are too alike for equal ratios to mean anything."""
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
TOOLS_FACTOR = 16.0
"""The same beside other runtimes or precisions: of one network, their effects reached 11."""
_MAD_TO_STD = 1.4826
_POLISH_ROUNDS = 10
"""Median polish converges in a few iterations."""
_SIEVE = 32
"""Pairs of platforms are first checked on this many models; few different pairs pass."""
_MIN_SLOPE = 9
"""A slope is fitted from this many models on."""
_STRONG_BIC = 6.0
_EXACT = 1e-9
"""A scale below it is rounding of logarithms."""
_REWEIGHTED_WITHIN = 2.5
_MAX_FITTED = 100
"""Points used to fit a line; the time grows with their square, and more do not improve the fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """Two platforms that seem to be one.

    Attributes:
        first, second: columns.
        n_models: number of common models, at least 5.
        ratio: median of second / first.
        deviation: within it, as a share of `ratio`, lie 95 % of the ratios.
        rho: rank correlation of the common models.
    """

    first: int
    second: int
    n_models: int
    ratio: float
    deviation: float
    rho: float


def duplicate_pairs(logs: Floats) -> list[Duplicate]:
    """Platforms whose values are proportional over the common models, a few rows excepted.

    Args:
        logs: (n_models, n_platforms).
    """
    found = []
    few = logs[:: max(1, logs.shape[0] // _SIEVE)].T.copy()
    for first in range(logs.shape[1] - 1):
        differences = few[first + 1 :] - few[[first]]
        middle = median_of(differences, axis=1)
        spread = median_of(np.abs(differences - middle[:, None]), axis=1)
        # A fast, tolerant check; pairs that pass are then checked on every model.
        for offset in np.flatnonzero(~(spread > 2 * PROPORTIONAL_SHARE)):
            second = first + 1 + int(offset)
            if (pair := _duplicate(logs, first, second)) is not None:
                found.append(pair)
    return found


def _duplicate(logs: Floats, first: int, second: int) -> Duplicate | None:
    ratios = np.exp(logs[:, second] - logs[:, first])
    common = np.isfinite(ratios)
    n = int(common.sum())
    if n < MIN_COMMON:
        return None
    ratio = float(np.median(ratios[common]))
    deviations = np.sort(np.abs(ratios[common] / ratio - 1))
    exceptions = max(int(_EXCEPTIONS * n), int(n >= _MIN_SLOPE))
    deviation = float(deviations[n - 1 - exceptions])
    is_noisy_copy = (
        _MAD_TO_STD * float(np.median(deviations)) <= PROPORTIONAL_SHARE
        and deviation <= _NOISY_SHARE
        and abs(ratio - 1) <= PROPORTIONAL_SHARE
        and n >= _MIN_SLOPE
    )
    if deviation > PROPORTIONAL_SHARE and not is_noisy_copy:
        return None
    a, b = logs[common, first], logs[common, second]
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    keep = np.abs(ratios[common] / ratio - 1) <= max(deviation, PROPORTIONAL_SHARE)
    rho = float(spearman_matrix(np.column_stack((a[keep], b[keep])))[0, 1])
    # NaN, if all kept values are equal, is not enough either.
    if not rho >= MIN_RHO:
        return None
    return Duplicate(
        first=first, second=second, n_models=n, ratio=ratio, deviation=deviation, rho=rho
    )


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
        level = median_of(logs - effect[:, None], axis=0)
        above = logs - level[None, :]
        parts = [median_of(above[:, groups == group], axis=1) for group in np.unique(groups)]
        effect = np.nan_to_num(median_of(np.column_stack(parts), axis=1))
    effect[np.isfinite(logs).sum(axis=1) < MIN_PLATFORMS] = np.nan
    return effect


def median_platforms(
    logs: Floats, tiers: Sequence[str], tools: Sequence[str]
) -> list[tuple[Floats, bool]]:
    """The median platform to compare each platform with, (n_models,), and whether it is alike.

    An alike one is made of the platforms of its tier with its tools (runtime and precision), since
    a runtime can be slow with an architecture on every device. With fewer than 3 of them it is made
    of its tier, and with fewer than 3 of those of all tiers; from it, a true effect of the tools is
    far, too.

    Args:
        logs: (n_models, n_platforms).
        tiers: of each platform.
        tools: of each platform.
    """
    _, tier = np.unique(np.array(tiers), return_inverse=True)
    _, narrow = np.unique([f"{a} {b}" for a, b in zip(tiers, tools, strict=True)],
                          return_inverse=True)  # fmt: skip
    made: dict[tuple[int, int], Floats] = {}

    def reference(column: int) -> tuple[Floats, bool]:
        for level, groups in enumerate((narrow, tier)):
            name = level, int(groups[column])
            inside = groups == groups[column]
            if inside.sum() >= MIN_PLATFORMS:
                if name not in made:
                    made[name] = median_platform(logs[:, inside], tier[inside])
                return made[name], level == 0
        if (-1, -1) not in made:
            made[-1, -1] = median_platform(logs, tier)
        return made[-1, -1], False

    return [reference(column) for column in range(logs.shape[1])]


def fit_residuals(values: Floats, reference: Floats) -> tuple[Floats, float | None]:
    """Distances of a platform's log values from its line on the median platform, and their scale.

    The line has slope 1 unless the data insist on another: from 9 models on, Siegel's repeated
    medians replace it if their robust BIC is lower by more than 6. A line with a free slope
    follows wrong values at one end of the models, and the smaller scale of slope 1 reveals that;
    slope 1 alone misses platforms that scale differently. On made-up fleets with a third of one
    device's rows slow, this found 18 of 20 devices, and the rule before it 6.
    The scale is 1.4826 x the median absolute residual, then the standard deviation of the
    residuals within 2.5 of it, since a third of wrong values inflates the median. All NaN and
    `None` below 5 models.

    Source: Machado 1993, robust model selection and M-estimation (BIC with a robust scale); Kass
    and Raftery 1995, a difference of 6 is strong evidence; Rousseeuw and Leroy 1987, reweighting.

    Args:
        values: logs of one platform, (n_models,).
        reference: of `median_platform`, (n_models,).
    """
    residuals = np.full(values.size, np.nan)
    known = np.flatnonzero(np.isfinite(values) & np.isfinite(reference))
    if known.size < MIN_COMMON:
        return residuals, None
    x, y = reference[known], values[known]
    fixed = y - x - np.median(y - x)
    free = _free_residuals(x, y)
    chosen = fixed if free is None or not _insists(fixed, free) else free
    residuals[known] = chosen
    return residuals, _reweighted(chosen)


def robust_scale(values: Floats) -> float:
    """1.4826 x the median absolute value: a standard deviation if the values are normal."""
    return float(_MAD_TO_STD * np.median(np.abs(values)))


def _insists(fixed: Floats, free: Floats) -> bool:
    """Whether the free slope explains so much more that it is worth its parameter."""
    before, after = robust_scale(fixed), robust_scale(free)
    if before <= _EXACT:
        return False
    gain = 2 * fixed.size * np.log(before / max(after, _EXACT))
    return bool(gain - np.log(fixed.size) > _STRONG_BIC)


def _reweighted(residuals: Floats) -> float:
    scale = robust_scale(residuals)
    kept = residuals[np.abs(residuals) <= _REWEIGHTED_WITHIN * scale]
    return float(np.sqrt((kept**2).sum() / (kept.size - 1)))


def outliers(residuals: Floats, scale: float, factor: float = OUTLIER_FACTOR) -> Mask:
    """Whether a value is more than 3.5 scales and a factor away from the line."""
    bound = max(OUTLIER_SCALES * scale, float(np.log(factor)))
    is_far: Mask = np.abs(residuals) > bound
    return is_far


def tied_share(values: Floats) -> float:
    """Share of values that equal another one; NaN is ignored, 0 without values."""
    known = values[np.isfinite(values)]
    if known.size == 0:
        return 0.0
    _, counts = np.unique(known, return_counts=True)
    return float(counts[counts > 1].sum() / known.size)


def _free_residuals(x: Floats, y: Floats) -> Floats | None:
    """Distances from Siegel's line of repeated medians; `None` if too few models give its slope."""
    order = np.lexsort((y, x))
    if order.size > _MAX_FITTED:
        order = order[np.linspace(0, order.size - 1, _MAX_FITTED).round().astype(np.int64)]
    if x.size < _MIN_SLOPE or np.ptp(x) == 0:
        return None
    # Importing `scipy.stats` for it takes longer than a table of a small workspace. Two equal x
    # have no slope.
    runs, rises = (values[order][:, None] - values[order] for values in (x, y))
    slopes = rises / np.where(runs == 0, np.nan, runs)
    slope = np.median(median_of(slopes, axis=1))
    distances: Floats = y - slope * x - np.median(y - slope * x)
    return distances


def median_of(values: Floats, axis: int) -> Floats:
    """Median that ignores NaN; NaN if all are NaN, without NumPy's warning."""
    ordered = np.sort(values, axis=axis)
    n = np.isfinite(values).sum(axis=axis, keepdims=True)
    low = np.take_along_axis(ordered, np.maximum((n - 1) // 2, 0), axis=axis)
    high = np.take_along_axis(ordered, np.maximum(n // 2, 0).clip(0, values.shape[axis] - 1), axis)
    middle: Floats = np.where(n > 0, (low + high) / 2, np.nan).squeeze(axis)
    return middle
