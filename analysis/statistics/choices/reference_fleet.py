"""How well the device models of a selection agree, each with the others."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.device_models import Agreement, agreement, device_members
from fleetrank.analysis.panel.panel import Panel
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.selection import fits_platform

AGREEMENT_NOTES = (
    "Agreement: Spearman's rho of latency over common models, mean over pairs of platforms of "
    "two device models at equal batch. FRM is not used, because FLOPs and memory agree between "
    "devices without any latency (table `transfer` shows how much).",
    "With few models rho is uncertain: ten models cannot separate 0.85 from 0.97; to decide "
    "whether a rho near 0.92 is above 0.9 takes about 100.",
)


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
