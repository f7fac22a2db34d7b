"""Table `variance`: the components, or what more measurements would buy."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import polars as pl

from fleetrank.analysis.panel.observations import SESSION_MEANING, DeviceGroup, left_out_notes
from fleetrank.analysis.panel.pair_groups import Row
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.variance.design_study import Plan
from fleetrank.analysis.statistics.variance.variance import GroupVariance, variances
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.table_settings import PART

_GROUP = {
    "runtime": pl.String,
    "precision": pl.String,
    "batch": pl.Int64,
    "axes": pl.String,
    "tier": pl.String,
}
_COMPONENT_SCHEMA = {
    **_GROUP,
    "component": pl.String,
    "variance": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "sd_percent": pl.Float64,
    "share": pl.Float64,
    "share_of_order": pl.Float64,
    "n_levels": pl.Int64,
    "degrees": pl.Int64,
    "is_negative": pl.Boolean,
    "reason": pl.String,
}
_PLAN_SCHEMA = {
    **_GROUP,
    "plan": pl.String,
    "n_devices": pl.Int64,
    "n_sessions": pl.Int64,
    "n_repeats": pl.Float64,
    "n_processes": pl.Float64,
    "platform_coefficient": pl.Float64,
    "platform_low": pl.Float64,
    "platform_high": pl.Float64,
    "tier_coefficient": pl.Float64,
    "tier_low": pl.Float64,
    "tier_high": pl.Float64,
    "reason": pl.String,
}

_OF_BOTH = (
    "log latency = model + device + model x device + session + model x session + repeat, all "
    "random, over platforms of one runtime, precision, batch and size of axes; one platform for "
    "each device model. A unit is the median of one process.",
    SESSION_MEANING,
    "Method: sums of squares of nested fits equal to their expectations (Henderson's method III; "
    "Searle, Casella and McCulloch 1992, 5.5), which needs no complete table.",
    "low to high: 95 % generalised interval (Weerahandi 1993): each mean square over a drawn "
    "chi-square. It assumes normal effects: with heavy tails it holds the truth in about 85 % of "
    "cases.",
)
_OF_COMPONENTS = (
    "variance: of log latency. sd_percent: one standard deviation of the component as a change of "
    "latency, 100 x (exp(sd) - 1). share: of all variances of the group. share_of_order: of the "
    "variances that can change an order; device and session shift all models alike.",
    "Large model x device: orders differ between devices, and only more devices help. Large model "
    "x session: one sweep is not enough. Large repeat: more repeats help.",
    "is_negative: the estimate is below 0 and is shown as 0: the component is too small for "
    "these data. If a component cannot be separated, its reason says which one contains it.",
)
_OF_PLANS = (
    "A coefficient is the share of true differences between models in the variance of the "
    "measured differences (generalisability coefficient; Cronbach et al. 1972, Brennan 2001): "
    "1 means that a repetition gives the same order.",
    "platform: the ranking on one device, repeated in another session. tier: the mean ranking of "
    "the devices, for other devices of this tier. n_processes: measurements of one model.",
    "now: one session, as all tables use the newest sweep only. +1 session: the mean of two. A "
    "coefficient of a plan uses the variances of the data; more models do not change it, they "
    "narrow its interval.",
)


def variance_table(session: Session) -> Table:
    """Variance components of log latency, or what more measurements would buy."""
    found = variances(session)
    notes = (*session.comparable.notes, *left_out_notes([one.group for one in found]))
    if PART.chosen(session.selection) == "plans":
        return plans_as_table(found, notes)
    return components_as_table(found, notes)


def components_as_table(found: tuple[GroupVariance, ...], notes: tuple[str, ...] = ()) -> Table:
    """One row for each component of each group."""
    rows = [
        _group_row(one.group) | asdict(component) for one in found for component in one.components
    ]
    return Table(
        title="Where the variance of log latency lies",
        frame=_frame(rows, _COMPONENT_SCHEMA),
        notes=notes,
        explanation=(*_OF_BOTH, *_OF_COMPONENTS),
    )


def plans_as_table(found: tuple[GroupVariance, ...], notes: tuple[str, ...] = ()) -> Table:
    """One row for each plan of each group with enough models."""
    return Table(
        title="What more sessions, repeats or devices would buy",
        frame=_frame(
            [_group_row(one.group) | _plan_row(plan) for one in found for plan in one.plans],
            _PLAN_SCHEMA,
        ),
        notes=notes,
        explanation=(*_OF_BOTH, *_OF_PLANS),
    )


def _frame(rows: Sequence[Row], schema: Mapping[str, type[pl.DataType]]) -> pl.DataFrame:
    """The rows; without the column `axes` if no group has axes."""
    frame = pl.DataFrame(rows, schema=schema)
    return frame if frame["axes"].count() else frame.drop("axes")


def _group_row(group: DeviceGroup) -> Row:
    return {name: getattr(group, name) for name in _GROUP}


def _plan_row(plan: Plan) -> Row:
    sides = {"platform": plan.platform, "tier": plan.tier}
    coefficients = {
        f"{side}_{column}": figure
        for side, one in sides.items()
        for column, figure in zip(
            ("coefficient", "low", "high"), (one.value, one.low, one.high), strict=True
        )
    }
    counts = {
        name: getattr(plan, name)
        for name in ("n_devices", "n_sessions", "n_repeats", "n_processes", "reason")
    }
    return {"plan": plan.name} | counts | coefficients
