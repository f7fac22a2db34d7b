"""The best reference device, and the fewest devices that represent the whole fleet."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fleetrank.analysis.arrays.bootstrap import percentile_interval
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.device_models import DRAWS, Agreement, agreement, device_members
from fleetrank.analysis.panel.panel import Panel
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.choices.proxies import (
    MAX_EXACT,
    Cover,
    Fold,
    is_reached,
    leave_one_out,
    smallest_cover,
    typical_rho,
)
from fleetrank.analysis.stored.patterns import fits_platform
from fleetrank.analysis.stored.selection import setting
from fleetrank.analysis.tables.table import Table
from fleetrank.foundation.wording import count_of

THRESHOLD = 0.9
"""Default rho from which a device counts as predicted.

Source: Lu et al. 2021 (OneProxy), who call a Spearman's rho of 0.9 to 1 strongly monotonic.
"""

_MEANING = (
    "Agreement: Spearman's rho of latency over common models, mean over pairs of platforms of "
    "two device models at equal batch. FRM is not used, because FLOPs and memory agree between "
    "devices without any latency (table `transfer` shows how much).",
    "With few models rho is uncertain: ten models cannot separate 0.85 from 0.97; to decide "
    "whether a rho near 0.92 is above 0.9 takes about 100.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fleet:
    """Agreement between device models that may be owned and device models to predict."""

    found: Agreement
    sources: npt.NDArray[np.int64]
    targets: npt.NDArray[np.int64]
    panel: Panel


def proxies_table(session: Session) -> Table:
    """Each device model as the only one to own: how well it ranks models for the others."""
    fleet = _fleet(session)
    rho, seed = _between(fleet, fleet.found.rho), session.selection.seed
    folds = leave_one_out(_square(fleet, rho), fleet.sources)
    folds = [fold for fold in folds if fold.left_out in fleet.targets]
    low, high = _intervals(fleet)
    typical = typical_rho(rho)
    rows = [
        _candidate(fleet, rho, number, folds)
        | {"median_rho": _none(typical[number]), "low": low[number], "high": high[number]}
        for number in range(fleet.sources.size)
    ]
    shown = pl.DataFrame(rows, schema=_PROXIES).sort(
        "median_rho", "device_model", descending=[True, False], nulls_last=True
    )
    drawn = (
        f"low to high: 95 % percentile bootstrap over models of median_rho, {DRAWS} resamples, "
        f"seed {seed}, from 9 models on. The best of several candidates looks better "
        "than it is; held_out_* has no such bias."
    )
    notes = (*fleet.panel.notes, _choice(fleet, folds), drawn, *_MEANING)
    return Table(title="Best single reference device", frame=shown, notes=notes)


def coverage_table(session: Session) -> Table:
    """The fewest device models whose best member predicts every other one.

    Settings: `threshold`, the rho from which a device counts as predicted.
    """
    threshold = setting(session.selection, "threshold", THRESHOLD)
    fleet = _fleet(session)
    rho = fleet.found.rho.copy()
    np.fill_diagonal(rho, 1.0)
    grid = np.ix_(fleet.sources, fleet.targets)
    cover = smallest_cover(rho[grid], threshold)
    members = range(fleet.sources.size) if cover is None else cover.members
    owned = fleet.sources[list(members)]
    rows = [_covered(fleet, rho, owned, target, threshold) for target in fleet.targets.tolist()]
    shown = pl.DataFrame(rows, schema=_COVERAGE)
    notes = (
        *fleet.panel.notes,
        _cover_note(fleet, cover, threshold),
        *_kept(fleet, owned, cover, threshold),
        *_MEANING,
    )
    return Table(title="Coverage of the fleet", frame=shown, notes=notes)


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
_COVERAGE = {
    "device_model": pl.String,
    "is_owned": pl.Boolean,
    "predicted_by": pl.String,
    "rho": pl.Float64,
    "n_models": pl.Int64,
    "reason": pl.String,
}


def _fleet(session: Session) -> _Fleet:
    panel, selection = session.panel, session.selection
    found = agreement(panel, selection.seed)
    sources = _fitting(panel, selection.source, selection.source_tier)
    targets = _fitting(panel, selection.target, selection.target_tier)
    if not sources.size or not np.setdiff1d(targets, sources[:1]).size:
        raise NoDataError(
            "no two device models in the selection can be compared",
            f"measured device models: {', '.join(found.devices[:20])}",
        )
    return _Fleet(found=found, sources=sources, targets=targets, panel=panel)


def _fitting(panel: Panel, pattern: str | None, tier: str | None) -> npt.NDArray[np.int64]:
    fits = panel.platforms.select(fits_platform(pattern, tier).alias("fits"))["fits"]
    _, member = device_members(panel)
    return np.unique(member[np.broadcast_to(fits.to_numpy(), member.shape)])


def _between(fleet: _Fleet, rho: Floats) -> Floats:
    """Sources by targets of (..., n_devices, n_devices); a device is not its own target."""
    others = np.where(np.eye(rho.shape[-1], dtype=np.bool_), np.nan, rho)
    chosen: Floats = others[..., fleet.sources[:, None], fleet.targets]
    return chosen


def _square(fleet: _Fleet, rho: Floats) -> Floats:
    square = np.full_like(fleet.found.rho, np.nan)
    square[np.ix_(fleet.sources, fleet.targets)] = rho
    return square


def _intervals(fleet: _Fleet) -> tuple[list[float | None], list[float | None]]:
    if fleet.found.draws is None:
        nothing: list[float | None] = [None] * fleet.sources.size
        return nothing, nothing
    low, high = percentile_interval(typical_rho(_between(fleet, fleet.found.draws)))
    return [_none(value) for value in low], [_none(value) for value in high]


def _candidate(fleet: _Fleet, rho: Floats, number: int, folds: list[Fold]) -> dict[str, object]:
    mine = rho[number]
    source = int(fleet.sources[number])
    known = np.isfinite(mine)
    chosen = [fold.rho for fold in folds if fold.chosen == source]
    judged = [value for value in chosen if value is not None]
    row: dict[str, object] = {
        "device_model": fleet.found.devices[source],
        "n_targets": int(known.sum()),
        "times_chosen": len(chosen),
        "held_out_median": float(np.median(judged)) if judged else None,
        "held_out_min": min(judged, default=None),
    }
    if not known.any():
        return row | {"reason": "no other device model at equal batch has 5 models in common"}
    worst = int(np.nanargmin(mine))
    fewest = fleet.found.n_models[source, fleet.targets[known]].min()
    return row | {
        "n_models": int(fewest),
        "min_rho": float(mine[worst]),
        "worst_target": fleet.found.devices[fleet.targets[worst]],
        "reason": fleet.found.reason,
    }


def _choice(fleet: _Fleet, folds: list[Fold]) -> str:
    """A note on how well the choice works for a device that was left out of it."""
    judged = [fold.rho for fold in folds if fold.rho is not None]
    if not judged:
        return "Choice without one device: undefined, too few device models."
    names = [fleet.found.devices[fold.chosen] for fold in folds]
    often = max(sorted(set(names)), key=names.count)
    return (
        f"Chosen without the device that then tests it, {count_of(len(folds), 'time')}: median "
        f"rho {np.median(judged):.3f}, lowest {min(judged):.3f}; the choice is {often} "
        f"{names.count(often)} times of {len(names)}."
    )


def _covered(
    fleet: _Fleet, rho: Floats, owned: npt.NDArray[np.int64], target: int, threshold: float
) -> dict[str, object]:
    mine = rho[owned, target]
    devices = fleet.found.devices
    if np.isnan(mine).all():
        return {
            "device_model": devices[target],
            "is_owned": False,
            "reason": "no rho with any device that may be owned",
        }
    best = int(np.nanargmax(mine))
    is_owned = bool(owned[best] == target)
    value = float(mine[best])
    reason = "measured itself" if is_owned else None
    if not is_reached(mine, threshold).any():
        reason = f"below {threshold:g} from every device that may be owned"
    return {
        "device_model": devices[target],
        "is_owned": is_owned,
        "predicted_by": devices[owned[best]],
        "rho": None if is_owned else value,
        "n_models": None if is_owned else int(fleet.found.n_models[owned[best], target]),
        "reason": reason,
    }


def _cover_note(fleet: _Fleet, cover: Cover | None, threshold: float) -> str:
    n_targets = count_of(fleet.targets.size, "device model")
    if cover is None:
        return f"No choice of devices predicts all of {n_targets} at rho >= {threshold:g}."
    method = (
        f"exact by search, as for up to {MAX_EXACT} device models that may be owned"
        if cover.is_exact
        else f"greedy; at most ln(n) + 1 = {cover.bound:.1f} times as many as the fewest"
    )
    names = ", ".join(fleet.found.devices[fleet.sources[member]] for member in cover.members)
    return (
        f"{len(cover.members)} of {n_targets} are enough at rho >= {threshold:g}: {names} "
        f"({method})."
    )


def _kept(
    fleet: _Fleet, owned: npt.NDArray[np.int64], cover: Cover | None, threshold: float
) -> tuple[str, ...]:
    """A note on how often the same devices are still enough in resamples of the models."""
    if cover is None:
        return ()
    if fleet.found.draws is None:
        return (f"Uncertainty of this choice: {fleet.found.reason}.",)
    draws = fleet.found.draws[:, owned[:, None], fleet.targets]
    reached = is_reached(draws, threshold) | (owned[:, None] == fleet.targets)
    share = float(reached.any(axis=1).all(axis=1).mean())
    return (
        f"In {100 * share:.0f} % of {DRAWS} resamples of the models (seed of the selection) the "
        "same devices are still enough: a set chosen at the threshold rarely is.",
    )


def _none(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
