"""Device models instead of platforms: agreement between them, and one profile of latencies each.

A device model with many units, runtimes or thread counts counts once.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.bootstrap import (
    MIN_MODELS_FOR_INTERVAL,
    resample_counts,
    resampled_units,
)
from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats, products, spearman_common
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.draws import PairBlock, blocks
from fleetrank.analysis.panel.panel import Panel, measures
from fleetrank.foundation.wording import count_of

DRAWS = 400
"""Resamples of models for an interval."""
MAX_BLOCKS = 500
"""Each set of common models is resampled separately; more sets take tens of seconds."""
MAX_PLATFORMS = 100
"""For this many, 400 draws of the correlations are 32 MB and take one or two seconds."""
MIN_SHARE = 0.8
"""Share of the models; a platform that measured fewer is left out of a complete panel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAgreement:
    """Rank agreement of latency between device models; NaN where undefined and on the diagonal.

    Attributes:
        devices: names of the device models, (n_devices,), sorted.
        rho: (n_devices, n_devices), mean over pairs of their platforms at equal batch, or
            at any batch if the panel allows it.
        n_models: fewest models that such a pair has in common; 0 without such a pair.
        draws: rho in resamples of the models, (draws, n_devices, n_devices); `None` with `reason`.
    """

    devices: tuple[str, ...]
    rho: Floats
    n_models: npt.NDArray[np.int64]
    draws: Floats | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """Log latencies of models on device models, complete, with a mean of 0 on each.

    Attributes:
        logs: (n_models, n_devices), mean over the device model's platforms.
        rows: positions of the models in the panel.
    """

    devices: tuple[str, ...]
    rows: npt.NDArray[np.int64]
    logs: Floats
    notes: tuple[str, ...]


def agreement(panel: Panel, seed: int) -> DeviceAgreement:
    """Rho of latency between all device models of a panel.

    Raises:
        NoDataError: fewer than two device models exist.
    """
    values = measures(panel)[0].values
    devices, member = device_members(panel)
    if len(devices) < 2:
        raise NoDataError("only one device model was measured", "measure or import another")
    batch = panel.platforms["batch"].to_numpy()
    alike = np.equal.outer(batch, batch) | panel.allows_unlike_batch
    alike &= np.not_equal.outer(member, member)
    found, common = spearman_common(values)
    is_known = alike & (common >= MIN_MODELS)
    drawn, reason = _drawn(values, np.triu(is_known), seed)
    return DeviceAgreement(
        devices=devices,
        rho=_by_device(np.where(is_known, found, np.nan), member),
        n_models=_fewest(np.where(is_known, common, 0), member),
        draws=None if drawn is None else _by_device(drawn, member),
        reason=reason,
    )


def profiles(panel: Panel) -> Profiles:
    """A complete table of models and device models, made by two simple rules.

    Platforms that measured less than 80 % of the models are left out, then models that were not
    measured on all of the rest.

    Raises:
        NoDataError: fewer than 5 models or 3 device models remain.
    """
    values = measures(panel)[0].values
    known = np.isfinite(values)
    rows, columns = complete_part(known)
    names, member = device_members(panel)
    kept, position = np.unique(member[columns], return_inverse=True)
    if rows.size < MIN_MODELS or kept.size < 3:
        raise NoDataError(
            f"{count_of(rows.size, 'model')} measured on all of "
            f"{count_of(kept.size, 'device model')}; "
            f"at least {MIN_MODELS} models on 3 are needed",
            "choose fewer platforms with `runtime=` or `precision=`, or measure the missing cells",
        )
    logs = values[np.ix_(rows, columns)]
    logs = logs - logs.mean(axis=0)
    share = (position[:, None] == np.arange(position.max() + 1)).astype(np.float64)
    lost = (values.shape[1] - columns.size, values.shape[0] - rows.size)
    notes = (
        f"Used: {rows.size} models on {kept.size} device models; dropped: "
        f"{count_of(lost[0], 'platform')} with less than {100 * MIN_SHARE:g} % of the models, "
        f"{count_of(lost[1], 'model')} not measured on all of the rest.",
    )
    return Profiles(
        devices=tuple(names[number] for number in kept),
        rows=rows,
        logs=logs @ (share / share.sum(axis=0)),
        notes=notes,
    )


def complete_part(
    known: npt.NDArray[np.bool_],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Models (rows) and platforms (columns) of a complete table, by the rules of `profiles`."""
    columns = np.flatnonzero(known.mean(axis=0) >= MIN_SHARE)
    return np.flatnonzero(known[:, columns].all(axis=1)), columns


def device_members(panel: Panel) -> tuple[tuple[str, ...], npt.NDArray[np.int64]]:
    """Names of the device models, sorted, and which of them each platform is, (n_platforms,).

    A platform without a device model counts as a separate one, under its device's name.
    """
    names = panel.platforms["device_model"].fill_null(panel.platforms["device"]).to_list()
    devices, member = np.unique(np.array(names), return_inverse=True)
    return tuple(devices.tolist()), member


def _drawn(
    values: Floats, is_known: npt.NDArray[np.bool_], seed: int
) -> tuple[Floats | None, str | None]:
    """Rho of the known pairs in shared resamples of the models, or the reason if not computed."""
    size = values.shape[1]
    if size > MAX_PLATFORMS:
        return None, f"no interval: {size} platforms, computed for up to {MAX_PLATFORMS}"
    pairs = [(int(i), int(j)) for i, j in np.argwhere(is_known)]
    parts = list(blocks(np.isfinite(values), pairs))
    fewest = min((part.models.size for part in parts), default=0)
    if fewest < MIN_MODELS_FOR_INTERVAL:
        least = f"at least {MIN_MODELS_FOR_INTERVAL} needed"
        return None, f"no interval: {count_of(fewest, 'model')} in a pair, {least}"
    if len(parts) > MAX_BLOCKS:
        sets = f"{len(parts)} sets of common models"
        return None, f"no interval: {sets}, computed for up to {MAX_BLOCKS}"
    counts = resample_counts(values.shape[0], DRAWS, np.random.default_rng(seed))
    drawn = np.full((DRAWS, size, size), np.nan)
    for part in parts:
        _fill(drawn, values, part, counts)
    return drawn, None


def _fill(drawn: Floats, values: Floats, part: PairBlock, counts: npt.NDArray[np.int64]) -> None:
    done = 0
    grid = np.ix_(part.models, part.columns)
    source, target = part.columns[part.source], part.columns[part.target]
    for units in resampled_units(values[grid], counts[:, part.models]):
        inside = products(units)[:, part.source, part.target]
        some = drawn[done : done + len(units)]
        some[:, source, target] = some[:, target, source] = inside
        done += len(units)


def _by_device(rho: Floats, member: npt.NDArray[np.int64]) -> Floats:
    """Means over pairs of platforms (..., p, p) inside each pair of device models."""
    known = np.isfinite(rho)
    n = _sums(known.astype(np.float64), member)
    total = _sums(np.where(known, rho, 0.0), member)
    means: Floats = np.where(n > 0, total / np.maximum(n, 1.0), np.nan)
    return means


def _sums(values: Floats, member: npt.NDArray[np.int64]) -> Floats:
    order = np.argsort(member, kind="stable")
    starts = np.flatnonzero(np.diff(member[order], prepend=-1))
    across = np.add.reduceat(values[..., order], starts, axis=-1)
    sums: Floats = np.add.reduceat(across[..., order, :], starts, axis=-2)
    return sums


def _fewest(common: npt.NDArray[np.int64], member: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The smallest count above 0 inside each pair of device models."""
    size = int(member.max()) + 1
    fewest = np.full((size, size), np.iinfo(np.int64).max)
    at = np.nonzero(common)
    np.minimum.at(fewest, (member[at[0]], member[at[1]]), common[at])
    return np.where(fewest == np.iinfo(np.int64).max, 0, fewest)
