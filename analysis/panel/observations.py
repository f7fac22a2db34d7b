"""Every process of every session, and the platforms of different devices that can be averaged."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.columns import TIERS
from fleetrank.foundation.wording import count_of

ALL_TIERS = "all"
_ALIKE = ("runtime", "precision", "batch", "axes")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGroup:
    """Platforms of one runtime, precision, batch and size of axes, one for each device model.

    Attributes:
        tier: `ALL_TIERS` if the platforms are of several.
        runtime, precision: `None` if an importer does not know it.
        axes: sizes of named input axes, such as `seq=128`; `None` without any.
        keys: platform keys, sorted.
        n_left_out: further platforms of the same device models.
    """

    runtime: str | None
    precision: str | None
    batch: int
    axes: str | None
    tier: str
    keys: tuple[str, ...]
    n_left_out: int


def device_groups(session: Session) -> list[DeviceGroup]:
    """Groups of each tier, then of all tiers where several have the same settings.

    Of a device model with several platforms (units, threads, backends) the one with most models
    counts: two units of a type are not two independent devices.

    Raises:
        NotComparableError: no platform holds comparable rows.
    """
    facts = session.comparable.cells.group_by("platform_key").agg(
        pl.len().alias("n_models"),
        pl.col("device_model").fill_null(pl.col("device")).first(),
        *(pl.col(name).first() for name in ("tier", *_ALIKE)),
    )
    across = facts.filter(pl.col("tier").n_unique().over(_ALIKE) > 1)
    every = pl.concat([facts, across.with_columns(tier=pl.lit(ALL_TIERS))])
    kept = every.sort("n_models", "platform_key", descending=[True, False]).unique(
        ("tier", *_ALIKE, "device_model"), keep="first", maintain_order=True
    )
    totals = every.group_by("tier", *_ALIKE).agg(pl.len().alias("n_platforms"))
    grouped = (
        kept.group_by("tier", *_ALIKE)
        .agg(pl.col("platform_key").sort())
        .join(totals, on=("tier", *_ALIKE), nulls_equal=True)
    )
    found = [
        DeviceGroup(
            tier=row["tier"],
            runtime=row["runtime"],
            precision=row["precision"],
            batch=row["batch"],
            axes=row["axes"],
            keys=tuple(row["platform_key"]),
            n_left_out=row["n_platforms"] - len(row["platform_key"]),
        )
        for row in grouped.to_dicts()
    ]
    return sorted(found, key=_order)


def _order(group: DeviceGroup) -> tuple[str, str, int, str, int]:
    tiers = (*TIERS, ALL_TIERS)
    tier = tiers.index(group.tier) if group.tier in tiers else len(tiers)
    return group.runtime or "", group.precision or "", group.batch, group.axes or "", tier


def left_out_notes(groups: Sequence[DeviceGroup]) -> tuple[str, ...]:
    """A note if a device model has further platforms that are not used."""
    n = sum(group.n_left_out for group in groups if group.tier != ALL_TIERS)
    if n == 0:
        return ()
    return (
        f"Not used: {count_of(n, 'further platform')} of the same device models (the one with most "
        "models counts); choose others with `source=`.",
    )
