"""What more sessions, repeats or devices would buy: generalisability coefficients of rankings."""

from dataclasses import dataclass

import numpy as np

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.statistics.variance.variance_components import (
    COMPONENTS,
    Component,
    Estimates,
)

_STEPS = (
    ("now", 0, 1, 0, 1),
    ("+1 session", 1, 1, 0, 1),
    ("x2 repeats", 0, 2, 0, 1),
    ("+1 device", 0, 1, 1, 1),
    ("x2 devices", 0, 1, 0, 2),
)
"""Name, more sessions, factor of repeats, more devices, factor of devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficient:
    """A generalisability coefficient, 0 to 1, with its 95 % interval; `None` where unknown."""

    value: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The coefficients for some numbers of sessions, repeats and devices.

    Attributes:
        n_sessions, n_repeats: for each device, and for each session; a mean may be fractional.
        n_processes: measurements of one model in all.
        platform: of the ranking on one of the devices, in another session.
        tier: of the mean ranking of the devices, for all devices of this kind.
        reason: why a coefficient is missing or too high.
    """

    name: str
    n_sessions: int
    n_repeats: float
    n_devices: int
    n_processes: float
    platform: Coefficient
    tier: Coefficient
    reason: str | None


def coefficients(
    variances: Floats, n_sessions: float, n_repeats: float, n_devices: float
) -> Floats:
    """Coefficients of a platform and of a tier, (2, draws), from variances (draws, 6).

    The share of the true differences between models in the variance of their observed differences:
    (M + MD) / (M + MD + MS / s + R / (s r)) of a platform and
    M / (M + MD / d + MS / (d s) + R / (d s r))
    of a tier; M, MD, MS and R are the variances of model, model x device, model x session, repeat.
    Effects of device and session shift all models and do not change the order. A variance that is
    NaN counts as 0.

    Source: Cronbach, Gleser, Nanda and Rajaratnam 1972; Brennan 2001, 4.1 (relative error).
    """
    known = np.nan_to_num(variances).T
    by_name = dict(zip(COMPONENTS, known, strict=True))
    of_model, crossed = by_name[Component.MODEL], by_name[Component.MODEL_DEVICE]
    within = by_name[Component.MODEL_SESSION] + by_name[Component.REPEAT] / n_repeats
    error = within / n_sessions
    own = of_model + crossed
    pairs = ((own, own + error), (of_model, of_model + (crossed + error) / n_devices))
    return np.array([part / np.where(whole > 0, whole, np.nan) for part, whole in pairs])


def plans(found: Estimates, n_repeats: float, n_devices: int) -> list[Plan]:
    """The measured design, and designs with more of one thing; of devices only if two were seen.

    Args:
        found: the variance components.
        n_repeats: repeats of a model in a session, harmonic mean.
        n_devices: measured device models.
    """
    has_devices = np.isfinite(found.raw[COMPONENTS.index(Component.MODEL_DEVICE)])
    return [
        _plan(found, name, (1 + more_sessions, times_repeats * n_repeats, devices))
        for name, more_sessions, times_repeats, more_devices, times_devices in _STEPS
        for devices in [times_devices * n_devices + more_devices]
        if has_devices or devices == n_devices
    ]


def _plan(found: Estimates, name: str, counts: tuple[int, float, int]) -> Plan:
    n_sessions, n_repeats, n_devices = counts
    known = dict(zip(COMPONENTS, np.isfinite(found.raw).tolist(), strict=True))
    has_sessions, has_repeats = known[Component.MODEL_SESSION], known[Component.REPEAT]
    has_devices = known[Component.MODEL_DEVICE]
    reasons = []
    needs_sessions = n_sessions > 1 and not has_sessions
    if needs_sessions:
        reasons.append("one session only")
    needs_repeats = "repeats" in name and not has_repeats
    if needs_repeats:
        reasons.append("one repeat only")
    is_noiseless = not has_sessions and not has_repeats
    if is_noiseless:
        reasons.append("platform: one session with one repeat")
    elif not has_sessions and not needs_sessions:
        reasons.append("platform: an upper bound, one session only")
    if not has_devices:
        reasons.append("tier: one device model")
    is_unknown = needs_sessions or needs_repeats
    platform, tier = _both(found, counts)
    return Plan(
        name=name,
        n_sessions=n_sessions,
        n_repeats=n_repeats,
        n_devices=n_devices,
        n_processes=n_sessions * n_repeats * n_devices,
        platform=Coefficient() if is_unknown or is_noiseless else platform,
        tier=Coefficient() if is_unknown or not has_devices else tier,
        reason="; ".join(reasons) or None,
    )


def _both(found: Estimates, counts: tuple[int, float, int]) -> tuple[Coefficient, Coefficient]:
    values = coefficients(np.maximum(found.raw, 0.0)[None], *counts)[:, 0]
    # Without any variance both are undefined, in every draw.
    drawn = np.nan_to_num(coefficients(found.draws, *counts))
    low, high = np.quantile(drawn, (0.025, 0.975), axis=1)
    platform, tier = (
        Coefficient() if np.isnan(value) else Coefficient(value=float(value), low=a, high=b)
        for value, a, b in zip(values, low.tolist(), high.tolist(), strict=True)
    )
    return platform, tier
