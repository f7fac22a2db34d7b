"""How charts show platforms, models and families: short names, order, and marks."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import polars as pl

from fleetrank.analysis.labels import PARTS, Labels, labels_of, published_names
from fleetrank.analysis.stored.columns import NO_FAMILY

_TIER_ORDER = {"gpu": 0, "cpu": 1, "edge": 2}
"""Order of tiers: from devices in a laboratory to users' devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyMark:
    """How a family is drawn; its shape is also readable without colour.

    Attributes:
        colour: as CSS has it.
        shape: a symbol of Vega, for charts.
        path: the same shape as an SVG path around 0, within 6 units, for legends.
    """

    colour: str
    shape: str
    path: str


FAMILY_MARKS: Mapping[str, FamilyMark] = MappingProxyType(
    {
        "standard_cnn": FamilyMark(colour="#0072B2", shape="square", path="M-4-4h8v8h-8z"),
        "mobile_cnn": FamilyMark(
            colour="#E69F00", shape="circle", path="M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z"
        ),
        "efficient_cnn": FamilyMark(
            colour="#009E73", shape="diamond", path="M0-5.6L5.6 0L0 5.6L-5.6 0z"
        ),
        "transformer": FamilyMark(colour="#D55E00", shape="triangle-up", path="M0-5L5.5 4.5H-5.5z"),
        "hybrid": FamilyMark(colour="#CC79A7", shape="triangle-down", path="M0 5L5.5-4.5H-5.5z"),
        "llama": FamilyMark(colour="#0072B2", shape="square", path="M-4-4h8v8h-8z"),
        "gpt": FamilyMark(
            colour="#E69F00", shape="circle", path="M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z"
        ),
        "opt": FamilyMark(colour="#009E73", shape="diamond", path="M0-5.6L5.6 0L0 5.6L-5.6 0z"),
        "neox": FamilyMark(colour="#D55E00", shape="triangle-up", path="M0-5L5.5 4.5H-5.5z"),
        "encoder": FamilyMark(colour="#CC79A7", shape="triangle-down", path="M0 5L5.5-4.5H-5.5z"),
        "other": FamilyMark(colour="#56B4E9", shape="triangle-right", path="M5 0L-4.5 5.5V-5.5z"),
        NO_FAMILY: FamilyMark(
            colour="#8a919c", shape="cross", path="M-5-2h3v-3h4v3h3v4h-3v3h-4v-3h-3z"
        ),
    }
)
"""Source of the colours: Okabe and Ito, Color Universal Design (2008); legible on white and on
near-black. Families of text repeat those of images, because a page is about one of both."""


def platform_labels(cells: pl.DataFrame) -> Labels:
    """Names of platforms, best known tier first.

    Takes rows of `cell_values.cell_values`; the order of the names is the order to show.
    """
    tier = pl.col("tier").replace_strict(_TIER_ORDER, default=len(_TIER_ORDER))
    ordered = cells.unique("platform_key").sort(tier, *PARTS)["platform_key"]
    return labels_of(ordered, published_names(cells.lazy()))


def chosen_platforms(cells: pl.DataFrame, most: int) -> dict[str, str]:
    """At most `most` of `platform_labels`: an equal share of each tier, evenly spread in it."""
    labels = platform_labels(cells).names
    if len(labels) <= most:
        return dict(labels)
    tier_of = dict(cells.select("platform_key", "tier").unique().iter_rows())
    by_tier: dict[object, list[str]] = {}
    for key in labels:
        by_tier.setdefault(tier_of[key], []).append(key)
    chosen: set[str] = set()
    n_left = most
    # Small tiers first: their unused share goes to larger tiers.
    for number, keys in enumerate(sorted(by_tier.values(), key=len)):
        n = min(len(keys), n_left // (len(by_tier) - number))
        chosen.update(keys[index * len(keys) // n] for index in range(n))
        n_left -= n
    return {key: label for key, label in labels.items() if key in chosen}


def models_by_latency(cells: pl.DataFrame) -> list[str]:
    """Models from the fastest to the slowest, by the mean over platforms of log latency.

    Each platform is centred first, so that a model does not look faster if it is missing on a slow
    one.
    """
    log = pl.col("latency_ns").log()
    ordered = (
        cells.filter(pl.col("latency_ns") > 0)
        .with_columns((log - log.mean().over("platform_key")).alias("log_ratio"))
        .group_by("model")
        .agg(pl.col("log_ratio").mean())
        .sort("log_ratio", "model")
    )
    return [str(name) for name in ordered["model"]]
