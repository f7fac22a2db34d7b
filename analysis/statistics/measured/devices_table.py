"""The devices of a lab: when each was measured, what failed, and whether it became slower."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.cell_notes import origin_banners
from fleetrank.analysis.stored.scope import of_every_workload
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.foundation.units import NS_PER_MS
from fleetrank.foundation.vocabulary import Status
from fleetrank.foundation.wording import count_of

WEEKS = 12
"""Newest weeks with a canary that a row draws."""
_BARS = "▁▂▃▄▅▆▇█"
_LEAST_SPAN = 0.1
"""The bars span at least this share of the fastest week, so that noise draws no mountains."""
States = Mapping[str, Mapping[str, object]]
"""By device, what `STATES` names."""
STATES: Mapping[str, pl.DataType] = {
    "state": pl.String(), "why": pl.String(), "canary_registered_ms": pl.Float64(),
    "proof": pl.String(),
}  # fmt: skip
"""What the rows do not know of a device: its state now, the sweep or the reason for it, and its
canary when it was registered; how fleetrank's figures compare there with bare ones."""
_SHOWN = (
    "device", "device_model", "state", "why", "canary_weeks", "canary_ratio", "proof", "failures",
    "n_attempts", "last_sweep", "last_utc", "canary_registered_ms", "canary_last_ms",
)  # fmt: skip
"""On a page, in this order."""


def devices_table(session: Session) -> Table:
    """One row for each device with stored attempts of any workload; no published ones."""
    attempts = of_every_workload(session.frame, session.selection)
    rows = attempts.filter(pl.col("origin") != "imported").sort("started_utc")
    is_failed = pl.col("status") != Status.OK
    facts = rows.group_by("device").agg(
        pl.col("device_model").drop_nulls().last(),
        pl.col("sweep_id").last().alias("last_sweep"),
        pl.col("finished_utc").max().alias("last_utc"),
        pl.len().cast(pl.Int64).alias("n_attempts"),
        is_failed.sum().cast(pl.Int64).alias("n_failed"),
    )
    kinds = rows.filter(is_failed).group_by("device", "error_kind").len()
    text = pl.format("{} {}", "len", pl.col("error_kind").fill_null("unknown"))
    failures = (
        kinds.sort("len", "error_kind", descending=True)
        .group_by("device", maintain_order=True)
        .agg(text.str.join(", ").alias("failures"))
    )
    found = (
        facts.join(failures, on="device", how="left")
        .join(_canaries(rows), on="device", how="left")
        .sort("device")
        .collect()
    )
    n_failed, n_attempts = int(found["n_failed"].sum()), int(found["n_attempts"].sum())
    of_all = count_of(n_attempts, "attempt")
    note = f"{count_of(found.height, 'device')}: {n_failed} of {of_all} failed."
    return Table(
        title="Devices",
        frame=found,
        notes=(*origin_banners(rows), note),
        explanation=explained("trust/devices", {"weeks": WEEKS}),
    )


def _canaries(rows: pl.LazyFrame) -> pl.LazyFrame:
    canary_ms = pl.coalesce("canary_ns_before", "canary_ns_after") / NS_PER_MS
    week = pl.col("started_utc").dt.truncate("1w").alias("week")
    weekly = rows.filter(canary_ms.is_not_null()).group_by("device", week)
    weeks = pl.col("canary_ms").tail(WEEKS)
    return (
        weekly.agg(canary_ms.median().alias("canary_ms"))
        .sort("week")
        .group_by("device", maintain_order=True)
        .agg(
            weeks.first().alias("canary_first_ms"),
            weeks.last().alias("canary_last_ms"),
            (weeks.last() / weeks.first()).alias("canary_ratio"),
            weeks.implode().map_elements(_bars, return_dtype=pl.String()).alias("canary_weeks"),
        )
    )


def _bars(values: Sequence[float]) -> str:
    """One bar a week; the lowest is the fastest one."""
    low, high = min(values), max(values)
    span = max(high - low, _LEAST_SPAN * low)
    return "".join(_BARS[round((len(_BARS) - 1) * (one - low) / span)] for one in values)


def with_states(table: Table, states: States) -> Table:
    """The table for a page: also the devices that have no rows, and what `STATES` names."""
    rows = [{"device": name, **one} for name, one in states.items()]
    frame = table.frame if table.frame.width else pl.DataFrame(schema={"device": pl.String()})
    known = pl.DataFrame(rows, schema={"device": pl.String(), **STATES})
    joined = frame.join(known, on="device", how="full", coalesce=True).sort("device")
    if "canary_last_ms" in joined.columns:
        ratio = pl.col("canary_last_ms") / pl.col("canary_registered_ms")
        joined = joined.with_columns(pl.coalesce(ratio, "canary_ratio").alias("canary_ratio"))
    return replace(table, frame=joined.select(one for one in _SHOWN if one in joined.columns))
