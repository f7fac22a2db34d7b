"""The best single reference device: how well each device model ranks models for the others.

Agreement is (n_devices, n_devices); NaN is unknown, counts as no prediction and is left out of
medians.
"""

import math
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fleetrank.analysis.arrays.bootstrap import percentile_interval
from fleetrank.analysis.arrays.known_means import known_median, medians_without
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.panel.device_models import DRAWS
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.choices.coverage import coverage_as_table
from fleetrank.analysis.statistics.choices.reference_fleet import (
    AGREEMENT_NOTES,
    Fleet,
    make_fleet,
)
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.table_settings import OWN
from fleetrank.foundation.wording import count_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """One device left out: the device chosen without it, and how well that one predicts it."""

    left_out: int
    chosen: int
    rho: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One device model as the only one to own.

    Attributes:
        n_targets: device models whose agreement with it is known.
        n_models: fewest models in common with one of them.
        median_rho: over these; `low` to `high` is its 95 % interval over models.
        times_chosen: how often it was chosen without the device that then tests it; `held_out_*`
            are its agreements with these devices.
    """

    device_model: str
    n_targets: int
    n_models: int | None
    median_rho: float | None
    low: float | None
    high: float | None
    min_rho: float | None
    worst_target: str | None
    times_chosen: int
    held_out_median: float | None
    held_out_min: float | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxiesResult:
    """Every candidate, and the test of the choice of one.

    Attributes:
        candidates: highest median first.
        folds: one for each target that was left out; they refer to `devices`.
    """

    candidates: tuple[Candidate, ...]
    folds: tuple[Fold, ...]
    devices: tuple[str, ...]


def compare_proxies(session: Session) -> ProxiesResult:
    """Each device model that may be owned as the only one.

    Raises:
        NoDataError: no two device models in the selection can be compared.
    """
    fleet = make_fleet(session)
    rho = _between(fleet, fleet.found.rho)
    folds = leave_one_out(_square(fleet, rho), fleet.sources)
    folds = [fold for fold in folds if fold.left_out in fleet.targets]
    intervals = _intervals(fleet)
    candidates = [
        _candidate(fleet, number, rho[number], intervals[number], folds)
        for number in range(fleet.sources.size)
    ]
    candidates.sort(
        key=lambda one: (
            math.inf if one.median_rho is None else -one.median_rho,
            one.device_model,
        )
    )
    return ProxiesResult(
        candidates=tuple(candidates), folds=tuple(folds), devices=fleet.found.devices
    )


def proxies_table(session: Session) -> Table:
    """Devices to own instead of all others: the best single one, or the fewest that are enough."""
    if OWN.chosen(session.selection) == "fewest":
        return coverage_as_table(session)
    return _candidates_as_table(session)


def _candidates_as_table(session: Session) -> Table:
    """Each device model as the only one to own: how well it ranks models for the others."""
    found = compare_proxies(session)
    drawn = (
        f"low to high: 95 % percentile bootstrap over models of median_rho, {DRAWS} resamples, "
        f"seed {session.selection.seed}, from 9 models on. The best of several candidates looks "
        "better than it is; held_out_* has no such bias."
    )
    return Table(
        title="Best single reference device",
        frame=pl.DataFrame([asdict(one) for one in found.candidates], schema=_PROXIES),
        notes=(*session.panel.notes, _choice(found)),
        explanation=(drawn, *AGREEMENT_NOTES),
    )


_PROXIES = {
    "device_model": pl.String,
    "n_targets": pl.Int64,
    "n_models": pl.Int64,
    "median_rho": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "min_rho": pl.Float64,
    "worst_target": pl.String,
    "times_chosen": pl.Int64,
    "held_out_median": pl.Float64,
    "held_out_min": pl.Float64,
    "reason": pl.String,
}


def _between(fleet: Fleet, rho: Floats) -> Floats:
    """Sources by targets of (..., n_devices, n_devices); a device is not its own target."""
    others = np.where(np.eye(rho.shape[-1], dtype=np.bool_), np.nan, rho)
    chosen: Floats = others[..., fleet.sources[:, None], fleet.targets]
    return chosen


def typical_rho(rho: Floats) -> Floats:
    """Median agreement of each source (second-last axis) over the targets (last axis).

    NaN where no target is known.
    """
    return known_median(rho, -1)


def best_source(rho: Floats) -> int | None:
    """The source with the highest median agreement (the first if tied), or `None`."""
    typical = typical_rho(rho)
    return None if np.isnan(typical).all() else int(np.nanargmax(typical))


def leave_one_out(rho: Floats, sources: npt.NDArray[np.int64]) -> list[Fold]:
    """Chooses the best of `sources` without each device, and tests the choice on that device.

    `rho` is square with NaN on the diagonal. A device that is left out is neither a source nor a
    target of the choice; a fold without any source is left out.
    """
    folds = []
    typical = medians_without(rho[sources])
    for left_out in range(rho.shape[0]):
        mine = np.where(sources == left_out, np.nan, typical[:, left_out])
        if np.isnan(mine).all():
            continue
        chosen = int(sources[np.nanargmax(mine)])
        value = float(rho[chosen, left_out])
        known = None if math.isnan(value) else value
        folds.append(Fold(left_out=left_out, chosen=chosen, rho=known))
    return folds


def _square(fleet: Fleet, rho: Floats) -> Floats:
    square = np.full_like(fleet.found.rho, np.nan)
    square[np.ix_(fleet.sources, fleet.targets)] = rho
    return square


def _intervals(fleet: Fleet) -> list[tuple[float | None, float | None]]:
    """Low and high end of each source's median agreement."""
    if fleet.found.draws is None:
        return [(None, None)] * fleet.sources.size
    low, high = percentile_interval(typical_rho(_between(fleet, fleet.found.draws)))
    return [(_known(a), _known(b)) for a, b in zip(low, high, strict=True)]


def _candidate(
    fleet: Fleet,
    number: int,
    mine: Floats,
    interval: tuple[float | None, float | None],
    folds: list[Fold],
) -> Candidate:
    source, devices = int(fleet.sources[number]), fleet.found.devices
    known = np.isfinite(mine)
    chosen = [fold.rho for fold in folds if fold.chosen == source]
    judged = [value for value in chosen if value is not None]
    worst = int(np.nanargmin(mine)) if known.any() else None
    reason = fleet.found.reason
    if worst is None:
        reason = "no other device model at equal batch has 5 models in common"
    n_models = fleet.found.n_models[source, fleet.targets[known]]
    return Candidate(
        device_model=devices[source],
        n_targets=int(known.sum()),
        n_models=int(n_models.min()) if n_models.size else None,
        median_rho=_known(typical_rho(mine)),
        low=interval[0],
        high=interval[1],
        min_rho=None if worst is None else float(mine[worst]),
        worst_target=None if worst is None else devices[fleet.targets[worst]],
        times_chosen=len(chosen),
        held_out_median=float(np.median(judged)) if judged else None,
        held_out_min=min(judged, default=None),
        reason=reason,
    )


def _choice(found: ProxiesResult) -> str:
    """A note on how well the choice works for a device that was left out of it."""
    judged = [fold.rho for fold in found.folds if fold.rho is not None]
    if not judged:
        return "Choice without one device: undefined, too few device models."
    names = [found.devices[fold.chosen] for fold in found.folds]
    often = max(sorted(set(names)), key=names.count)
    return (
        f"Chosen without the device that then tests it, {count_of(len(names), 'time')}: median "
        f"rho {np.median(judged):.3f}, lowest {min(judged):.3f}; the choice is {often} "
        f"{names.count(often)} times of {len(names)}."
    )


def _known(value: float | Floats) -> float | None:
    return None if np.isnan(value) else float(value)
