"""The head of the page: what it covers, the banner, doubts, and the legend of families."""

from collections.abc import Collection, Sequence
from datetime import datetime

import polars as pl

from fleetrank.analysis.figures.labels import FAMILY_MARKS
from fleetrank.analysis.report.origin_words import kinds_of, unreal_rows
from fleetrank.analysis.report.sections.sections import Section
from fleetrank.analysis.stored.cell_notes import devices_of
from fleetrank.analysis.stored.columns import NO_FAMILY
from fleetrank.analysis.tables.values import time_text
from fleetrank.foundation.wording import count_of

_NAMED_FLAGS = 4
"""A sentence names at most this many kinds of flags."""


def legend(cells: pl.DataFrame) -> list[dict[str, str]]:
    """Name, colour and symbol of each family that the cells have."""
    present = set(cells["family"].fill_null(NO_FAMILY))
    return [
        {"name": name.replace("_", " "), "colour": mark.colour, "path": mark.path}
        for name, mark in FAMILY_MARKS.items()
        if name in present
    ]


def facts(cells: pl.DataFrame, now: datetime) -> list[str]:
    """How much the page covers, and when it was measured and built."""
    first = cells["started_utc"].drop_nulls().min()
    measured = f"measured {first:%Y-%m-%d}" if isinstance(first, datetime) else "time not recorded"
    return [
        count_of(cells["model"].n_unique(), "model"),
        count_of(cells["platform_key"].n_unique(), "platform"),
        count_of(cells["device"].n_unique(), "device"),
        measured,
        f"page built {time_text(now)}",
    ]


def banner(cells: pl.DataFrame, sections: Sequence[Section]) -> str | None:
    """A warning if some values are of simulated or virtual devices.

    Args:
        cells: the values of the page's workload.
        sections: of the page; some draw values of other workloads.
    """
    unreal, parts = unreal_rows(cells), []
    if not unreal.is_empty():
        kinds = kinds_of(unreal["origin"])
        parts.append(
            f"{unreal.height} of {cells.height} values are {kinds}, those of {devices_of(unreal)}"
        )
    parts += _of_sections(sections, set(unreal["device"]))
    if not parts:
        return None
    text = "; ".join(parts)
    return (
        f"{text[0].upper()}{text[1:]}: they show how this page works. They are not evidence about "
        "hardware."
    )


def _of_sections(sections: Sequence[Section], named: Collection[str]) -> list[str]:
    """Which sections draw other devices that are not real, beside those that are named."""
    found = {}
    for section in sections:
        if section.drawn is not None:
            rows = unreal_rows(section.drawn).select("device", "origin")
            found[section.short] = rows.filter(~pl.col("device").is_in(list(named)))
    found = {short: rows for short, rows in found.items() if not rows.is_empty()}
    if not found:
        return []
    rows = pl.concat(found.values())
    verb = "section {} draws" if len(found) == 1 else "sections {} draw"
    where = f"the {verb.format(', '.join(found))}"
    return [f"{where} values that are {kinds_of(rows['origin'])}, those of {devices_of(rows)}"]


def doubts(cells: pl.DataFrame) -> str | None:
    """How many of the values carry a quality flag; the most frequent flags come first."""
    flagged = cells.filter(pl.col("flags").list.len() > 0)
    if flagged.is_empty():
        return None
    counts = (
        flagged["flags"].explode().value_counts().sort("count", "flags", descending=[True, False])
    )
    named = ", ".join(f"{flag} {count}" for flag, count in counts.head(_NAMED_FLAGS).iter_rows())
    return f"{flagged.height} of {cells.height} values carry a flag ({named}) and are kept."
