"""The fewest device models that represent the whole fleet.

Agreement is (n_devices, n_devices); NaN is unknown and counts as no prediction.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.panel.device_models import DRAWS, DeviceAgreement
from fleetrank.analysis.tables.table import explained
from fleetrank.foundation.wording import count_of


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetAgreement:
    """Agreement between device models that may be owned and device models to predict.

    Attributes:
        sources, targets: positions in `found.devices`, sorted.
    """

    found: DeviceAgreement
    sources: npt.NDArray[np.int64]
    targets: npt.NDArray[np.int64]


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


def covered(
    fleet: FleetAgreement, rho: Floats, owned: npt.NDArray[np.int64], target: int, threshold: float
) -> Covered:
    """Which of the owned devices predicts a target best, and whether that is enough."""
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


def kept_note(
    fleet: FleetAgreement, owned: npt.NDArray[np.int64], threshold: float
) -> tuple[str, ...]:
    """How often the same devices are still enough in resamples of the models."""
    if fleet.found.draws is None:
        return (f"Uncertainty of this choice: {fleet.found.reason}.",)
    draws = fleet.found.draws[:, owned[:, None], fleet.targets]
    reached = is_reached(draws, threshold) | (owned[:, None] == fleet.targets)
    share = float(reached.any(axis=1).all(axis=1).mean())
    return explained("choose/kept", {"percent": f"{100 * share:.0f}", "draws": DRAWS})


def cover_note(fleet: FleetAgreement, cover: Cover | None, threshold: float) -> str:
    """The sentence that says how many devices are enough, and how that was found."""
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
