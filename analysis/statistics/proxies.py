"""The best single reference device: how well each device model ranks models for the others.

Agreement is (n_devices, n_devices); NaN is unknown, counts as no prediction and is left out of
medians.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.bootstrap import (
    known,
    known_median,
    medians_without,
    percentile_interval,
)
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.device_models import DRAWS, Agreement, agreement, device_members
from fleetrank.analysis.panel.panel import Panel
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.selection import fits_platform, setting
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.foundation.errors import count_of

# How well the device models of a selection agree, each with the others.


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Agreement between device models that may be owned and device models to predict.

    Attributes:
        sources, targets: positions in `found.devices`, sorted.
    """

    found: Agreement
    sources: npt.NDArray[np.int64]
    targets: npt.NDArray[np.int64]


def make_fleet(session: Session) -> Fleet:
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
    return Fleet(found=found, sources=sources, targets=targets)


def _fitting(panel: Panel, pattern: str | None, tier: str | None) -> npt.NDArray[np.int64]:
    fits = panel.platforms.select(fits_platform(pattern, tier).alias("fits"))["fits"]
    _, member = device_members(panel)
    return np.unique(member[np.broadcast_to(fits.to_numpy(), member.shape)])


# The fewest device models that represent the whole fleet.
#
# Agreement is (n_devices, n_devices); NaN is unknown and counts as no prediction.

MAX_EXACT = 20
"""A search of 2^20 subsets takes seconds."""
THRESHOLD = 0.9
"""Default rho from which a device counts as predicted.

Source: Lu et al. 2021 (OneProxy), who call a Spearman's rho of 0.9 to 1 strongly monotonic.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cover:
    """Members that predict all targets; their number is at most `bound` times the minimum."""

    members: tuple[int, ...]
    is_exact: bool
    bound: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """One device model of the fleet, and the owned device model that predicts it best.

    Attributes:
        is_owned: it is measured itself; `rho` and `n_models` are then `None`.
        predicted_by: `None` if its agreement with every owned device model is unknown.
        n_models: models that both have in common.
    """

    device_model: str
    is_owned: bool
    predicted_by: str | None
    rho: float | None
    n_models: int | None
    reason: str | None


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
    kept = () if cover is None else _kept_note(fleet, owned, threshold)
    return Table.of(
        Covered,
        (_covered(fleet, rho, owned, target, threshold) for target in fleet.targets.tolist()),
        title="Coverage of the fleet",
        notes=(*session.panel.notes, _cover_note(fleet, cover, threshold)),
        explanation=(*kept, *explained("choose/fewest")),
    )


def smallest_cover(rho: Floats, threshold: float) -> Cover | None:
    """Fewest rows of (n_sources, n_targets) such that some row reaches the threshold per target.

    A device predicts itself when its entry is 1. Exact by search for up to 20 sources, and then
    of equally small sets the one with the highest mean of best agreements; greedy beyond.
    `None` when even all rows leave a target out.
    Source: Johnson 1974 for the greedy bound H(n) <= ln(n) + 1.
    """
    reaches = is_reached(rho, threshold)
    if not reaches.any(axis=0).all():
        return None
    if rho.shape[0] <= MAX_EXACT:
        return Cover(members=_search(rho, reaches), is_exact=True, bound=1.0)
    bound = math.log(rho.shape[1]) + 1
    return Cover(members=_greedy(reaches), is_exact=False, bound=bound)


def is_reached(rho: Floats, threshold: float) -> npt.NDArray[np.bool_]:
    """Whether each agreement is at least the threshold; equal ones may differ by rounding."""
    reached: npt.NDArray[np.bool_] = np.nan_to_num(rho, nan=-2.0) >= threshold - 1e-9
    return reached


def _search(rho: Floats, reaches: npt.NDArray[np.bool_]) -> tuple[int, ...]:
    n_sources, n_targets = reaches.shape
    masks = [int("".join("1" if hit else "0" for hit in row), 2) for row in reaches]
    full = (1 << n_targets) - 1
    agreement = np.nan_to_num(rho, nan=-2.0)
    for size in range(1, n_sources + 1):
        found = [
            members
            for members in itertools.combinations(range(n_sources), size)
            if _joined(masks, members) == full
        ]
        if found:
            return max(found, key=lambda members: agreement[list(members)].max(axis=0).mean())
    raise ValueError("all rows together do not reach every column")


def _joined(masks: list[int], members: tuple[int, ...]) -> int:
    joined = 0
    for member in members:
        joined |= masks[member]
    return joined


def _greedy(reaches: npt.NDArray[np.bool_]) -> tuple[int, ...]:
    """Takes the row that reaches the most remaining targets, the first if tied."""
    left = np.ones(reaches.shape[1], dtype=np.bool_)
    members = []
    while left.any():
        best = int((reaches & left).sum(axis=1).argmax())
        members.append(best)
        left &= ~reaches[best]
    return tuple(members)


def _covered(
    fleet: Fleet, rho: Floats, owned: npt.NDArray[np.int64], target: int, threshold: float
) -> Covered:
    mine = rho[owned, target]
    devices = fleet.found.devices
    if np.isnan(mine).all():
        return Covered(
            device_model=devices[target],
            is_owned=False,
            predicted_by=None,
            rho=None,
            n_models=None,
            reason="no rho with any device that may be owned",
        )
    best = int(np.nanargmax(mine))
    is_owned = bool(owned[best] == target)
    reason = "measured itself" if is_owned else None
    if not is_reached(mine, threshold).any():
        reason = f"below {threshold:g} from every device that may be owned"
    return Covered(
        device_model=devices[target],
        is_owned=is_owned,
        predicted_by=devices[owned[best]],
        rho=None if is_owned else float(mine[best]),
        n_models=None if is_owned else int(fleet.found.n_models[owned[best], target]),
        reason=reason,
    )


def _kept_note(fleet: Fleet, owned: npt.NDArray[np.int64], threshold: float) -> tuple[str, ...]:
    """How often the same devices are still enough in resamples of the models."""
    if fleet.found.draws is None:
        return (f"Uncertainty of this choice: {fleet.found.reason}.",)
    draws = fleet.found.draws[:, owned[:, None], fleet.targets]
    reached = is_reached(draws, threshold) | (owned[:, None] == fleet.targets)
    share = float(reached.any(axis=1).all(axis=1).mean())
    return explained("choose/kept", {"percent": f"{100 * share:.0f}", "draws": DRAWS})


def _cover_note(fleet: Fleet, cover: Cover | None, threshold: float) -> str:
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


def _intervals(fleet: Fleet) -> list[tuple[float | None, float | None]]:
    """Low and high end of each source's median agreement."""
    if fleet.found.draws is None:
        return [(None, None)] * fleet.sources.size
    low, high = percentile_interval(typical_rho(_between(fleet, fleet.found.draws)))
    return [(known(a), known(b)) for a, b in zip(low, high, strict=True)]


def _candidate(
    fleet: Fleet, number: int, mine: Floats, interval: tuple[float | None, float | None]
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
