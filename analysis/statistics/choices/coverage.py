"""The fewest device models that represent the whole fleet.

Agreement is (n_devices, n_devices); NaN is unknown and counts as no prediction.
"""

import itertools
import math
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.panel.device_models import DRAWS
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.choices.reference_fleet import (
    AGREEMENT_NOTES,
    Fleet,
    make_fleet,
)
from fleetrank.analysis.stored.selection import setting
from fleetrank.analysis.tables.table import Table
from fleetrank.foundation.wording import count_of

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageResult:
    """The chosen device models, and how well they predict each one.

    Attributes:
        cover: positions in `may_own`; `None` if no choice predicts all, then all are owned.
        may_own: device models that may be owned.
        kept_share: share of resamples of the models in which the same choice is still enough;
            `None` without a cover, or with `no_draws`, the reason.
    """

    targets: tuple[Covered, ...]
    cover: Cover | None
    may_own: tuple[str, ...]
    kept_share: float | None
    no_draws: str | None


def cover_fleet(session: Session, threshold: float) -> CoverageResult:
    """The fewest device models whose best member agrees with every other one.

    Args:
        session: the selected rows; sources may be owned, targets are predicted.
        threshold: the rho from which a device counts as predicted.

    Raises:
        NoDataError: no two device models in the selection can be compared.
    """
    fleet = make_fleet(session)
    rho = fleet.found.rho.copy()
    np.fill_diagonal(rho, 1.0)
    cover = smallest_cover(rho[np.ix_(fleet.sources, fleet.targets)], threshold)
    owned = fleet.sources if cover is None else fleet.sources[list(cover.members)]
    return CoverageResult(
        targets=tuple(
            _covered(fleet, rho, owned, target, threshold) for target in fleet.targets.tolist()
        ),
        cover=cover,
        may_own=tuple(fleet.found.devices[source] for source in fleet.sources),
        kept_share=None if cover is None else _kept_share(fleet, owned, threshold),
        no_draws=fleet.found.reason if fleet.found.draws is None else None,
    )


def coverage_as_table(session: Session) -> Table:
    """The fewest device models whose best member predicts every other one.

    Settings: `threshold`, the rho from which a device counts as predicted.
    """
    threshold = setting(session.selection, "threshold", THRESHOLD)
    found = cover_fleet(session, threshold)
    shown = pl.DataFrame([asdict(one) for one in found.targets], schema=_COVERAGE)
    return Table(
        title="Coverage of the fleet",
        frame=shown,
        notes=(*session.panel.notes, _cover_note(found, threshold)),
        explanation=(*_kept_note(found), *AGREEMENT_NOTES),
    )


_COVERAGE = {
    "device_model": pl.String,
    "is_owned": pl.Boolean,
    "predicted_by": pl.String,
    "rho": pl.Float64,
    "n_models": pl.Int64,
    "reason": pl.String,
}


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


def _kept_share(fleet: Fleet, owned: npt.NDArray[np.int64], threshold: float) -> float | None:
    if fleet.found.draws is None:
        return None
    draws = fleet.found.draws[:, owned[:, None], fleet.targets]
    reached = is_reached(draws, threshold) | (owned[:, None] == fleet.targets)
    return float(reached.any(axis=1).all(axis=1).mean())


def _cover_note(found: CoverageResult, threshold: float) -> str:
    n_targets, cover = count_of(len(found.targets), "device model"), found.cover
    if cover is None:
        return f"No choice of devices predicts all of {n_targets} at rho >= {threshold:g}."
    method = (
        f"exact by search, as for up to {MAX_EXACT} device models that may be owned"
        if cover.is_exact
        else f"greedy; at most ln(n) + 1 = {cover.bound:.1f} times as many as the fewest"
    )
    names = ", ".join(found.may_own[member] for member in cover.members)
    return (
        f"{len(cover.members)} of {n_targets} are enough at rho >= {threshold:g}: {names} "
        f"({method})."
    )


def _kept_note(found: CoverageResult) -> tuple[str, ...]:
    """A note on how often the same devices are still enough in resamples of the models."""
    if found.cover is None:
        return ()
    if found.kept_share is None:
        return (f"Uncertainty of this choice: {found.no_draws}.",)
    return (
        f"In {100 * found.kept_share:.0f} % of {DRAWS} resamples of the models (seed of the "
        "selection) the same devices are still enough: a set chosen at the threshold rarely is.",
    )
