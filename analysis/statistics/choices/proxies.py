"""The best single reference device: how well each device model ranks models for the others.

Agreement is (n_devices, n_devices); NaN is unknown, counts as no prediction and is left out of
medians.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.bootstrap import percentile_interval
from fleetrank.analysis.arrays.known_means import known, known_median, medians_without
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.device_models import DRAWS, agreement, device_members
from fleetrank.analysis.panel.panel import Panel
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.choices.coverage import (
    THRESHOLD,
    Covered,
    FleetAgreement,
    cover_note,
    covered,
    kept_note,
    smallest_cover,
)
from fleetrank.analysis.stored.name_patterns import fits_platform
from fleetrank.analysis.stored.selection import setting
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.foundation.wording import count_of


def make_fleet(session: Session) -> FleetAgreement:
    """The agreement of the selected device models, each with the others.

    Raises:
        NoDataError: no two of them can be compared.
    """
    panel, selection = session.panel, session.selection
    found = agreement(panel, selection.seed)
    sources = _fitting(panel, selection.source, selection.source_tier)
    targets = _fitting(panel, selection.target, selection.target_tier)
    if not sources.size or not np.setdiff1d(targets, sources[:1]).size:
        raise NoDataError(
            "no two device models in the selection can be compared",
            f"measured device models: {', '.join(found.devices[:20])}",
        )
    return FleetAgreement(found=found, sources=sources, targets=targets)


def _fitting(panel: Panel, pattern: str | None, tier: str | None) -> npt.NDArray[np.int64]:
    fits = panel.platforms.select(fits_platform(pattern, tier).alias("fits"))["fits"]
    _, member = device_members(panel)
    return np.unique(member[np.broadcast_to(fits.to_numpy(), member.shape)])


def coverage_table(session: Session) -> Table:
    """The fewest device models whose best member agrees with every other one.

    Sources may be owned, targets are predicted. Settings: `threshold`, the rho from which a device
    counts as predicted.

    Raises:
        NoDataError: no two device models in the selection can be compared.
    """
    threshold = setting(session.selection, "threshold", THRESHOLD)
    fleet = make_fleet(session)
    rho = fleet.found.rho.copy()
    np.fill_diagonal(rho, 1.0)
    cover = smallest_cover(rho[np.ix_(fleet.sources, fleet.targets)], threshold)
    owned = fleet.sources if cover is None else fleet.sources[list(cover.members)]
    kept = () if cover is None else kept_note(fleet, owned, threshold)
    return Table.of(
        Covered,
        (covered(fleet, rho, owned, target, threshold) for target in fleet.targets.tolist()),
        title="Coverage of the fleet",
        notes=(*session.panel.notes, cover_note(fleet, cover, threshold)),
        explanation=(*kept, *explained("choose/fewest")),
    )


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
    """

    device_model: str
    n_targets: int
    n_models: int | None
    median_rho: float | None
    low: float | None
    high: float | None
    min_rho: float | None
    worst_target: str | None
    reason: str | None


def proxies_table(session: Session) -> Table:
    """The single device to own instead of all others, the best first.

    Raises:
        NoDataError: no two device models in the selection can be compared.
    """
    fleet = make_fleet(session)
    rho = _between(fleet, fleet.found.rho)
    square = np.full_like(fleet.found.rho, np.nan)
    square[np.ix_(fleet.sources, fleet.targets)] = rho
    folds = leave_one_out(square, fleet.sources)
    folds = [fold for fold in folds if fold.left_out in fleet.targets]
    intervals = _intervals(fleet)
    candidates = [
        _candidate(fleet, number, rho[number], intervals[number])
        for number in range(fleet.sources.size)
    ]
    candidates.sort(
        key=lambda one: (
            math.inf if one.median_rho is None else -one.median_rho,
            one.device_model,
        )
    )
    return Table.of(
        Candidate,
        candidates,
        title="Best single reference device",
        notes=(*session.panel.notes, _choice(folds, fleet.found.devices)),
        explanation=explained("choose/proxy", {"draws": DRAWS, "seed": session.selection.seed}),
    )


def _between(fleet: FleetAgreement, rho: Floats) -> Floats:
    """Sources by targets of (..., n_devices, n_devices); a device is not its own target."""
    others = np.where(np.eye(rho.shape[-1], dtype=np.bool_), np.nan, rho)
    chosen: Floats = others[..., fleet.sources[:, None], fleet.targets]
    return chosen


def typical_rho(rho: Floats) -> Floats:
    """Median agreement of each source (second-last axis) over the targets (last axis).

    NaN where no target is known.
    """
    return known_median(rho, -1)


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
        folds.append(Fold(left_out=left_out, chosen=chosen, rho=known(rho[chosen, left_out])))
    return folds


def _intervals(fleet: FleetAgreement) -> list[tuple[float | None, float | None]]:
    """Low and high end of each source's median agreement."""
    if fleet.found.draws is None:
        return [(None, None)] * fleet.sources.size
    low, high = percentile_interval(typical_rho(_between(fleet, fleet.found.draws)))
    return [(known(a), known(b)) for a, b in zip(low, high, strict=True)]


def _candidate(
    fleet: FleetAgreement, number: int, mine: Floats, interval: tuple[float | None, float | None]
) -> Candidate:
    source, devices = int(fleet.sources[number]), fleet.found.devices
    is_known = np.isfinite(mine)
    worst = int(np.nanargmin(mine)) if is_known.any() else None
    reason = fleet.found.reason
    if worst is None:
        reason = "no other device model at equal batch has 5 models in common"
    n_models = fleet.found.n_models[source, fleet.targets[is_known]]
    return Candidate(
        device_model=devices[source],
        n_targets=int(is_known.sum()),
        n_models=int(n_models.min()) if n_models.size else None,
        median_rho=known(typical_rho(mine)),
        low=interval[0],
        high=interval[1],
        min_rho=None if worst is None else float(mine[worst]),
        worst_target=None if worst is None else devices[fleet.targets[worst]],
        reason=reason,
    )


def _choice(folds: Sequence[Fold], devices: Sequence[str]) -> str:
    """A note on how well the choice works for a device that was left out of it."""
    judged = [fold.rho for fold in folds if fold.rho is not None]
    if not judged:
        return "Choice without one device: undefined, too few device models."
    names = [devices[fold.chosen] for fold in folds]
    often = max(sorted(set(names)), key=names.count)
    return (
        f"Chosen without the device that then tests it, {count_of(len(names), 'time')}: median "
        f"rho {np.median(judged):.3f}, lowest {min(judged):.3f}; the choice is {often} "
        f"{names.count(often)} times of {len(names)}."
    )
