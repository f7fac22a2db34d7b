"""Parts `variance` and `plans` of table `trust`: where the variance lies, and what reduces it.

Components: models, devices, sessions, repeats. Plans: generalisability coefficients of rankings
with more sessions, repeats or devices.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats
from fleetrank.analysis.arrays.variance_components import (
    COMPONENTS,
    Codes,
    Component,
    Estimates,
    Observations,
    coefficients,
    estimate,
)
from fleetrank.analysis.panel.panel import PAUSE_HOURS
from fleetrank.analysis.panel.session import (
    DeviceGroup,
    Session,
    device_groups,
    left_out_notes,
    observations,
)
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.foundation.errors import count_of

_OF_ORDER = (
    Component.MODEL, Component.MODEL_DEVICE, Component.MODEL_SESSION, Component.REPEAT,
)  # fmt: skip
"""Device and session shift all models alike: they do not change an order."""
_INSIDE = {
    Component.MODEL_DEVICE: Component.MODEL,
    Component.SESSION: Component.DEVICE,
    Component.MODEL_SESSION: Component.MODEL_DEVICE,
    Component.REPEAT: Component.MODEL_SESSION,
}
"""Where the variance of a component is that cannot be separated."""
_LACKING = {
    Component.MODEL: "one model",
    Component.DEVICE: "one device model",
    Component.MODEL_DEVICE: "one device model",
    Component.SESSION: "one session on each device",
    Component.MODEL_SESSION: "no models in two sessions of a device",
    Component.REPEAT: "one repeat of each model in a session",
}
_STEPS = (
    ("now", 0, 1, 0, 1),
    ("+1 session", 1, 1, 0, 1),
    ("x2 repeats", 0, 2, 0, 1),
    ("+1 device", 0, 1, 1, 1),
    ("x2 devices", 0, 1, 0, 2),
)
"""Name, more sessions, factor of repeats, more devices, factor of devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentVariance:
    """One variance component; `None` has its `reason`.

    Attributes:
        variance: of log latency, not below 0.
        low, high: 95 % generalised interval.
        sd_percent: 100 x (exp(standard deviation) - 1).
        share: of the sum of all components that are known.
        share_of_order: of the sum of those that can change an order; `None` for device and session.
        n_levels: how many models, devices, ... or processes were seen.
        degrees: degrees of freedom.
        is_negative: the estimate was below 0.
    """

    group: DeviceGroup
    component: Component
    variance: float | None = None
    low: float | None = None
    high: float | None = None
    sd_percent: float | None = None
    share: float | None = None
    share_of_order: float | None = None
    n_levels: int
    degrees: int = 0
    is_negative: bool = False
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The coefficients for some numbers of sessions, repeats and devices; `None` where unknown.

    Attributes:
        n_sessions, n_repeats: for each device, and for each session; a mean may be fractional.
        n_processes: measurements of one model in all.
        platform_coefficient: of the ranking on one of the devices, in another session; 0 to 1,
            with its 95 % interval.
        tier_coefficient: of the mean ranking of the devices, for all devices of this kind.
        reason: why a coefficient is missing or too high.
    """

    group: DeviceGroup
    plan: str
    n_devices: int
    n_sessions: int
    n_repeats: float
    n_processes: float
    platform_coefficient: float | None
    platform_low: float | None
    platform_high: float | None
    tier_coefficient: float | None
    tier_low: float | None
    tier_high: float | None
    reason: str | None


def variance_table(session: Session) -> Table:
    """Variance components of log latency.

    Raises:
        NotComparableError: no platform holds comparable rows.
    """
    return _table(session, ComponentVariance, "Where the variance of log latency lies")


def plans_table(session: Session) -> Table:
    """What more sessions, repeats or devices would buy; raises as `variance_table`."""
    return _table(session, Plan, "What more sessions, repeats or devices would buy")


def _table(session: Session, kind: type[ComponentVariance | Plan], title: str) -> Table:
    groups, seed = device_groups(session), session.selection.seed
    frame = observations(session).drop_nulls("latency_ns")
    found = [_of_group(frame, group, seed) for group in groups]
    is_plans = kind is Plan
    without = {"keys", "n_left_out"} | (
        set() if any(group.axes is not None for group in groups) else {"axes"}
    )
    return Table.of(
        kind,
        [row for both in found for row in both[is_plans]],
        title=title,
        notes=(*session.comparable.notes, *left_out_notes(groups)),
        explanation=explained(
            "trust/plans" if is_plans else "trust/variance", {"pause_hours": PAUSE_HOURS}
        ),
        without=without,
    )


def _of_group(
    frame: pl.DataFrame, group: DeviceGroup, seed: int
) -> tuple[list[ComponentVariance], list[Plan]]:
    """The components and the plans of one group of platforms; no plans without 5 models."""
    mine = frame.filter(pl.col("platform_key").is_in(list(group.keys)))
    data = Observations(
        values=np.log(mine["latency_ns"].to_numpy()),
        model=_codes(mine["identity"]),
        device=_codes(mine["platform_key"]),
        session=_codes(mine["session"]),
    )
    n_models = mine["identity"].n_unique()
    levels = (
        n_models,
        mine["platform_key"].n_unique(),
        mine.select("identity", "platform_key").n_unique(),
        mine["session"].n_unique(),
        mine.select("identity", "session").n_unique(),
        mine.height,
    )
    if n_models < MIN_MODELS:
        few = f"{count_of(n_models, 'model')}, at least {MIN_MODELS} needed"
        blank = (
            ComponentVariance(group=group, component=component, n_levels=n, reason=few)
            for component, n in zip(COMPONENTS, levels, strict=True)
        )
        return list(blank), []
    stream = zlib.crc32("\n".join(group.keys).encode())
    found = estimate(data, np.random.default_rng([seed, stream]))
    counts = mine.group_by("identity", "session").len()["len"].to_numpy()
    n_repeats = float(counts.size / (1 / counts).sum())
    return list(_components(group, found, levels)), _plans(group, found, n_repeats, levels[1])


def _codes(names: pl.Series) -> Codes:
    return (names.rank("dense") - 1).to_numpy().astype(np.int64)


def _components(
    group: DeviceGroup, found: Estimates, levels: tuple[int, ...]
) -> Iterator[ComponentVariance]:
    shown = np.maximum(found.raw, 0.0)
    low, high = np.quantile(found.draws, (0.025, 0.975), axis=0)
    of_order = np.array([component in _OF_ORDER for component in COMPONENTS])
    known = np.isfinite(found.raw)
    shares = _shares(shown, known), _shares(shown, known & of_order)
    for at, component in enumerate(COMPONENTS):
        if not known[at]:
            why = _why_unknown(component, known)
            yield ComponentVariance(
                group=group, component=component, n_levels=levels[at], reason=why
            )
            continue
        is_negative = bool(found.raw[at] < 0)
        yield ComponentVariance(
            group=group,
            component=component,
            variance=float(shown[at]),
            low=float(low[at]),
            high=float(high[at]),
            sd_percent=float(100 * np.expm1(np.sqrt(shown[at]))),
            share=shares[0][at],
            share_of_order=shares[1][at],
            n_levels=levels[at],
            degrees=int(found.degrees[at]),
            is_negative=is_negative,
            reason="the estimate is below 0" if is_negative else None,
        )


def _shares(variances: Floats, kept: np.ndarray) -> list[float | None]:
    total = float(variances[kept].sum())
    return [
        float(variance / total) if keep and total > 0 else None
        for variance, keep in zip(variances, kept, strict=True)
    ]


def _why_unknown(component: Component, known: np.ndarray) -> str:
    """What is missing, and which component contains the variance."""
    outer = _INSIDE.get(component)
    while outer is not None and not known[COMPONENTS.index(outer)]:
        outer = _INSIDE.get(outer)
    part = f": part of {outer}" if outer is not None else ""
    return _LACKING[component] + part


def _plans(group: DeviceGroup, found: Estimates, n_repeats: float, n_devices: int) -> list[Plan]:
    """The measured design, and designs with more of one thing; of devices only if two were seen.

    Args:
        group: the platforms.
        found: the variance components.
        n_repeats: repeats of a model in a session, harmonic mean.
        n_devices: measured device models.
    """
    has_devices = np.isfinite(found.raw[COMPONENTS.index(Component.MODEL_DEVICE)])
    return [
        _plan(group, found, name, (1 + more_sessions, times_repeats * n_repeats, devices))
        for name, more_sessions, times_repeats, more_devices, times_devices in _STEPS
        for devices in [times_devices * n_devices + more_devices]
        if has_devices or devices == n_devices
    ]


def _plan(group: DeviceGroup, found: Estimates, name: str, counts: tuple[int, float, int]) -> Plan:
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
    values = _coefficients_of(found, counts)
    nothing = dict.fromkeys(values, dict.fromkeys(("coefficient", "low", "high")))
    if is_unknown or is_noiseless:
        values["platform"] = nothing["platform"]
    if is_unknown or not has_devices:
        values["tier"] = nothing["tier"]
    return Plan(
        group=group,
        plan=name,
        n_devices=n_devices,
        n_sessions=n_sessions,
        n_repeats=n_repeats,
        n_processes=n_sessions * n_repeats * n_devices,
        **{f"{side}_{what}": one for side, of in values.items() for what, one in of.items()},
        reason="; ".join(reasons) or None,
    )


def _coefficients_of(
    found: Estimates, counts: tuple[int, float, int]
) -> dict[str, dict[str, float | None]]:
    """Coefficient and its interval, of a platform and of a tier; without any variance none."""
    values = coefficients(np.maximum(found.raw, 0.0)[None], *counts)[:, 0]
    # Without any variance both are undefined, in every draw.
    drawn = np.nan_to_num(coefficients(found.draws, *counts))
    low, high = np.quantile(drawn, (0.025, 0.975), axis=1)
    return {
        side: {"coefficient": None, "low": None, "high": None}
        if np.isnan(value)
        else {"coefficient": float(value), "low": float(a), "high": float(b)}
        for side, value, a, b in zip(("platform", "tier"), values, low, high, strict=True)
    }
