"""Array functions that check a data set; values are logarithms, NaN where one is missing."""

import contextlib
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import numpy.typing as npt
import polars as pl

from fleetrank.analysis.arrays.bootstrap import MIN_MODELS_FOR_INTERVAL
from fleetrank.analysis.arrays.ranking import Floats, spearman_matrix
from fleetrank.analysis.errors import NotComparableError
from fleetrank.analysis.panel.panel import Panel
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.columns import ROUNDED_SENTINELS, SENTINELS
from fleetrank.analysis.stored.selection import cell_pattern, split_precision
from fleetrank.foundation.errors import count_of
from fleetrank.foundation.vocabulary import NS_PER_MS, Problem

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


# Array functions that find values in another unit; values are logarithms, NaN where missing.

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


# One finding of the audit.


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding of the audit.

    Attributes:
        platform_key: `None` if the finding is about a model on all its platforms.
        model: `None` if the finding is about the whole platform.
        figure: the observed value; `detail` explains it.
        command: of the shell, to leave the cell out of all figures; `None` without one.
        wrong_cell: its sweep and the name of its model, which `model` may extend; `None` if the
            finding is not about one cell.
    """

    what: Problem
    platform_key: str | None = None
    model: str | None = None
    figure: float | None = None
    detail: str
    what_to_do: str
    command: str | None = None
    wrong_cell: tuple[str, str] | None = None

    def with_command(self, workload: str) -> "Finding":
        """The finding with its command, if it is about one cell."""
        if self.wrong_cell is None:
            return self
        sweep_id, model = self.wrong_cell
        pattern = cell_pattern(model, str(self.platform_key), workload)
        parts = ("fleetrank", "results", "exclude", sweep_id, "--only", pattern)
        return replace(self, command=shlex.join((*parts, "--reason", self.what.value)))


# The audit of the comparable cells: each platform beside the others.

_TOOLS = ("runtime", "precision")
MAX_TIED_SHARE = 0.05
"""More ties than this change a rank correlation by more than its rounding."""
_Sources = Mapping[tuple[str, str], tuple[str, str]]
"""Model of the panel and platform, to sweep and stored name of the model."""


def of_panel(session: Session) -> Iterator[Finding]:
    """Findings that compare platforms with one another; raises the errors of `session.panel`."""
    panel = session.panel
    logs = np.log(np.where(panel.latency > 0, panel.latency, np.nan))
    yield from _duplicates(panel, logs)
    yield from off_the_line(session)
    yield from _slipped(panel, logs)
    yield from _slipped_memory(panel, _sources_of(session))
    yield from _ties(panel)
    yield from _few(panel)


def _sources_of(session: Session) -> _Sources:
    names = ("identity", "platform_key", "sweep_id", "model")
    rows = session.comparable.cells.select(names).iter_rows()
    return {(identity, key): (sweep, model) for identity, key, sweep, model in rows}


def _duplicates(panel: Panel, logs: Floats) -> Iterator[Finding]:
    devices = panel.platforms["device"].to_list()
    for pair in duplicate_pairs(logs):
        same = "the same device, " if devices[pair.first] == devices[pair.second] else ""
        is_equal = max(pair.ratio, 1 / pair.ratio) - 1 <= PROPORTIONAL_SHARE
        form = "equal to" if is_equal else "proportional to"
        yield Finding(
            what=Problem.DUPLICATE if is_equal else Problem.PROPORTIONAL,
            platform_key=panel.keys[pair.second],
            figure=pair.ratio,
            detail=(
                f"{form} {panel.keys[pair.first]}: {same}{count_of(pair.n_models, 'model')}, "
                f"95 % of the ratios within {100 * pair.deviation:.2g} % of {pair.ratio:.4g}, "
                f"rho {pair.rho:.3g}"
            ),
            what_to_do="possibly the same device registered twice: if so, count it once",
        )


def off_the_line(session: Session) -> tuple[Finding, ...]:
    """Latencies far from what the platform's other models predict; raises those of `panel`.

    All models predict, also those that the selection leaves out: a figure is as doubtful alone as
    among others.
    """
    return session.once_of_rows(_selected_off_the_line)


def _selected_off_the_line(session: Session) -> tuple[Finding, ...]:
    chosen, sources = session.selection, _sources_of(session)
    if (chosen.model, chosen.family) == (None, None):
        return tuple(_off_the_line(session))
    # Some of the rows may have only one workload, all of them several.
    every = replace(chosen, model=None, family=None, workload=str(session.workload))
    names = {(*source, key): model for (model, key), source in sources.items()}
    found: list[Finding] = []
    # Models of another version of the tools can make every platform of all models incomparable.
    with contextlib.suppress(NotComparableError):
        found.extend(_off_the_line(session.asked(every)))
    return tuple(
        replace(one, model=names[cell])
        for one in found
        if one.wrong_cell and (cell := (*one.wrong_cell, str(one.platform_key))) in names
    )


def _off_the_line(session: Session) -> Iterator[Finding]:
    """Each precision has its own line: what int8 gains differs from device to device."""
    panel, sources = session.panel, _sources_of(session)
    logs = np.log(np.where(panel.latency > 0, panel.latency, np.nan))
    references = median_platforms(logs, _words(panel, "tier"), _words(panel, *_TOOLS))
    precise = _numbers([split_precision(model)[1] or "" for model in panel.models])
    for (column, key), own in product(enumerate(panel.keys), np.unique(precise)):
        reference, is_alike = references[column]
        values = np.where(precise == own, logs[:, column], np.nan)
        residuals, scale = fit_residuals(values, reference)
        if scale is None:
            continue
        powers = unit_slips(residuals)
        least = OUTLIER_FACTOR if is_alike else TOOLS_FACTOR
        for row in np.flatnonzero(outliers(residuals, scale, least)):
            factor = float(np.exp(residuals[row]))
            slip = int(powers[row])
            yield Finding(
                what=Problem.UNIT_SLIP if slip else Problem.AGAINST_THE_FIT,
                platform_key=key,
                model=panel.models[row],
                figure=factor,
                detail=(
                    f"{panel.latency[row, column] / NS_PER_MS:.4g} ms is {factor:.3g} times the "
                    f"value predicted from the platform's other models; scale {np.exp(scale):.3g}"
                    + (f", near 10^{slip}" if slip else "")
                ),
                what_to_do=(
                    "check the unit of that row in the source"
                    if slip
                    else "measure it again; possible causes: a slow state, a fallback or another "
                    "network"
                ),
                wrong_cell=sources[panel.models[row], key],
            )


def _slipped(panel: Panel, logs: Floats) -> Iterator[Finding]:
    """Platforms and models whose latencies are all in another unit."""
    tiers = _numbers(_words(panel, "tier"))
    powers, factors = platform_slips(logs, tiers)
    for column in np.flatnonzero(powers):
        yield Finding(
            what=Problem.SLIPPED_PLATFORM,
            platform_key=panel.keys[column],
            figure=float(np.exp(factors[column])),
            detail=(
                f"its latencies are {np.exp(factors[column]):.3g} times those of its tier's median "
                f"platform, near 10^{powers[column]}"
            ),
            what_to_do="check the unit of the latencies in the source or in the mapping",
        )
    powers, factors = model_slips(logs, panel.flops, tiers)
    for row in np.flatnonzero(powers):
        yield Finding(
            what=Problem.SLIPPED_MODEL,
            model=panel.models[row],
            figure=float(np.exp(factors[row])),
            detail=(
                f"on all platforms it takes {np.exp(factors[row]):.3g} times what its FLOPs (or, "
                f"without them, the median model) predict, near 10^{powers[row]}"
            ),
            what_to_do="check the unit of its latencies and of its FLOPs in the source",
        )


def _slipped_memory(panel: Panel, sources: _Sources) -> Iterator[Finding]:
    """Peak memory in another unit, beside platforms that count it in the same way."""
    memory = np.log(np.where(panel.memory > 0, panel.memory, np.nan))
    counted = _numbers(_words(panel, "tier", "memory_metric"))
    powers, factors = platform_slips(memory, counted)
    references = median_platforms(memory, _words(panel, "memory_metric"), _words(panel, "tier"))
    alike = _numbers(_words(panel, "tier", "memory_metric", *_TOOLS))
    small = np.full(len(panel.keys), np.nan)
    for group in np.unique(alike):
        small[alike == group] = mib_slips(memory[:, alike == group])
    for column, key in enumerate(panel.keys):
        if powers[column] or np.isfinite(small[column]):
            factor = float(np.exp(factors[column] if powers[column] else small[column]))
            near = f"10^{powers[column]}" if powers[column] else f"{MIB_PER_MB:.7g} (MB and MiB)"
            yield Finding(
                what=Problem.SLIPPED_MEMORY,
                platform_key=key,
                figure=factor,
                detail=f"its peak memory is {factor:.5g} times the median platform's, near {near}",
                what_to_do="check the unit of peak memory in the source or in the mapping",
            )
        residuals, scale = fit_residuals(memory[:, column], references[column][0])
        if scale is None:
            continue
        far = outliers(residuals, scale) & (unit_slips(residuals) != 0)
        for row in np.flatnonzero(far):
            factor = float(np.exp(residuals[row]))
            yield Finding(
                what=Problem.SLIPPED_MEMORY,
                platform_key=key,
                model=panel.models[row],
                figure=factor,
                detail=(
                    f"peak memory is {factor:.4g} times the value predicted from the platform's "
                    f"other models, near 10^{unit_slips(residuals)[row]} (or 1024)"
                ),
                what_to_do="check the unit of that row in the source",
                wrong_cell=sources[panel.models[row], key],
            )


def _words(panel: Panel, *facts: str) -> list[str]:
    """Some facts of each platform as one text."""
    columns = [panel.platforms[fact].cast(pl.String).fill_null("?").to_list() for fact in facts]
    return [" ".join(parts) for parts in zip(*columns, strict=True)]


def _numbers(words: list[str]) -> npt.NDArray[np.int64]:
    return np.unique(np.array(words), return_inverse=True)[1].astype(np.int64)


def _ties(panel: Panel) -> Iterator[Finding]:
    for what, values in (
        (Problem.TIED_LATENCY, panel.latency),
        (Problem.TIED_MEMORY, panel.memory),
    ):
        for column, key in enumerate(panel.keys):
            share = tied_share(values[:, column])
            if share > MAX_TIED_SHARE:
                n = int(np.isfinite(values[:, column]).sum())
                yield Finding(
                    what=what,
                    platform_key=key,
                    figure=share,
                    detail=f"share of {count_of(n, 'model')} that equals another's figure",
                    what_to_do="tied values (rounded at the source): their ranks are meaningless",
                )


def _few(panel: Panel) -> Iterable[Finding]:
    counts = np.isfinite(panel.latency).sum(axis=0)
    for key, n in zip(panel.keys, counts.tolist(), strict=True):
        if n < MIN_MODELS_FOR_INTERVAL:
            yield Finding(
                what=Problem.TOO_FEW_MODELS,
                platform_key=key,
                figure=float(n),
                detail=f"{count_of(n, 'model')}, {MIN_MODELS_FOR_INTERVAL} for an interval",
                what_to_do="measure more models; 100 are enough to decide a rho near 0.9",
            )
