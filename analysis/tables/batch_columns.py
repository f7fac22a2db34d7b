"""Columns that state the batch on both sides, for a selection that compares unlike batches."""

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from fleetrank.analysis.tables.table import Table

if TYPE_CHECKING:
    from fleetrank.analysis.panel.session import Session

SOURCE_BATCH, TARGET_BATCH = "batch", "target_batch"
"""The columns: one batch, or several as `1, 1024`; null where a row is about neither."""

_MEANING = (
    "batch, target_batch: of the platforms on both sides. Tiers are compared at any batch, as the "
    "selection asks, also where this explanation speaks of equal batch."
)


def with_batches(table: Table, session: "Session") -> Table:
    """The table with the batches of each row's source and target, if unlike ones are compared.

    A row between platforms has their batches, one between tiers those of all selected platforms of
    the tier. A table without source and target, and every table of another selection, is unchanged.
    """
    columns = table.frame.columns
    if not session.selection.allow_unlike_batch or not {"source", "target"} <= set(columns):
        return table
    known = _batches(session)
    after = columns.index("target") + 1
    marked = table.frame.with_columns(
        pl.col(side).replace_strict(known, default=None, return_dtype=pl.String).alias(name)
        for side, name in (("source", SOURCE_BATCH), ("target", TARGET_BATCH))
    ).select(*columns[:after], SOURCE_BATCH, TARGET_BATCH, *columns[after:])
    return replace(table, frame=marked, explanation=(*table.explanation, _MEANING))


def _batches(session: "Session") -> dict[str, str]:
    """The batches behind each name in a row: a platform's key, a tier or a runtime."""
    from fleetrank.analysis.panel.selected_pairs import chosen_platforms

    platforms = session.panel.platforms
    chosen = sorted(
        {at for side in chosen_platforms(session.panel, session.selection) for at in side}
    )
    found: dict[str, set[int]] = {}
    for facts in platforms[chosen].iter_rows(named=True):
        for name in ("platform_key", "tier", "runtime"):
            batches = found.setdefault(str(facts[name]), set())
            if facts["batch"] is not None:
                batches.add(facts["batch"])
    return {name: ", ".join(map(str, sorted(some))) or "?" for name, some in found.items()}
