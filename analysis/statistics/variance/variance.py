"""Where the variance of log latency lies: models, devices, sessions, repeats."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats
from fleetrank.analysis.panel.observations import (
    DeviceGroup,
    device_groups,
    observations,
)
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.variance.design_study import Plan, plans
from fleetrank.analysis.statistics.variance.variance_components import (
    COMPONENTS,
    Codes,
    Component,
    Estimates,
    Observations,
    estimate,
)
from fleetrank.foundation.wording import count_of

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

    component: Component
    variance: float | None
    low: float | None
    high: float | None
    sd_percent: float | None
    share: float | None
    share_of_order: float | None
    n_levels: int
    degrees: int
    is_negative: bool
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupVariance:
    """The components and the plans of one group of platforms; no plans without 5 models."""

    group: DeviceGroup
    components: tuple[ComponentVariance, ...]
    plans: tuple[Plan, ...]


def variances(session: Session) -> tuple[GroupVariance, ...]:
    """Variance components of every group of platforms; made once a session.

    Raises:
        NotComparableError: no platform holds comparable rows.
    """
    return session.once(_variances)


def _variances(session: Session) -> tuple[GroupVariance, ...]:
    frame = observations(session).drop_nulls("latency_ns")
    seed = session.selection.seed
    return tuple(_of_group(frame, group, seed) for group in device_groups(session))


def _of_group(frame: pl.DataFrame, group: DeviceGroup, seed: int) -> GroupVariance:
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
        return GroupVariance(group=group, components=_unknown(levels, few), plans=())
    stream = zlib.crc32("\n".join(group.keys).encode())
    found = estimate(data, np.random.default_rng([seed, stream]))
    counts = mine.group_by("identity", "session").len()["len"].to_numpy()
    return GroupVariance(
        group=group,
        components=tuple(_components(found, levels)),
        plans=tuple(plans(found, float(counts.size / (1 / counts).sum()), levels[1])),
    )


def _codes(names: pl.Series) -> Codes:
    return np.unique(names.to_numpy(), return_inverse=True)[1].astype(np.int64)


def _unknown(levels: tuple[int, ...], reason: str) -> tuple[ComponentVariance, ...]:
    return tuple(
        _missing(component, n, reason) for component, n in zip(COMPONENTS, levels, strict=True)
    )


def _missing(component: Component, n_levels: int, reason: str) -> ComponentVariance:
    return ComponentVariance(
        component=component,
        variance=None,
        low=None,
        high=None,
        sd_percent=None,
        share=None,
        share_of_order=None,
        n_levels=n_levels,
        degrees=0,
        is_negative=False,
        reason=reason,
    )


def _components(found: Estimates, levels: tuple[int, ...]) -> Iterator[ComponentVariance]:
    shown = np.maximum(found.raw, 0.0)
    low, high = np.quantile(found.draws, (0.025, 0.975), axis=0)
    of_order = np.array([component in _OF_ORDER for component in COMPONENTS])
    known = np.isfinite(found.raw)
    shares = _shares(shown, known), _shares(shown, known & of_order)
    for at, component in enumerate(COMPONENTS):
        if not known[at]:
            yield _missing(component, levels[at], _why_unknown(component, known))
            continue
        is_negative = bool(found.raw[at] < 0)
        yield ComponentVariance(
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
