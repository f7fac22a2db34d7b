"""Makes the tables that `table_specs.toml` lists.

To add a part: write a function `(session) -> Table` in `analysis/statistics/` and name it there.
Start from `session.cells` or `session.panel`: they hold the selected values, and the notes that
every table shows.
"""

import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.labels import published_names
from fleetrank.analysis.stored.scope import of_precisions, refuse_unmatched
from fleetrank.analysis.stored.selection import Selection, fits_platform
from fleetrank.analysis.tables.explanations import explained
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.table_specs import Part, part_of
from fleetrank.foundation.lease import pause_between_steps

if TYPE_CHECKING:
    from fleetrank.analysis.panel.session import Session

TableFunction = Callable[["Session"], Table]

_STATISTICS = "fleetrank.analysis.statistics"
"""The package of the modules that `Part.function` names."""


def make_table(
    name: str, frame: pl.LazyFrame, selection: Selection, *, results: Path | None = None
) -> Table:
    """Makes one table from every stored attempt, as `load.load_measurements` scans them.

    `name` is a table's, or that of one of its parts, such as `trust/dropped`.
    `results` is the folder that was scanned; tables of side tables are empty without it.
    Raises the errors of `session_table`, which is for several tables of the same rows.
    """
    from fleetrank.analysis.panel.session import Session

    return session_table(name, Session(frame, selection, results=results))


def session_table(name: str, session: "Session") -> Table:
    """Makes one table; tables of one session share its arrays.

    Raises the errors of `check_request` and of `checked_table`.
    """
    check_request(name, session.frame, session.selection)
    return checked_table(name, session)


def checked_table(name: str, session: "Session") -> Table:
    """Makes one table of a session that `check_request` accepted.

    A table is a step: reading pauses before it while a measurement runs on this host.

    Raises:
        AnalysisError: a setting is far out of range.
        NoDataError: no row remains.
        NotComparableError: rows differ in a fact that must be equal for the comparison.
    """
    pause_between_steps()
    selection, part = session.selection, part_of(name)
    if not part.is_of_pairs and (selection.source, selection.source_tier) != (None, None):
        session = session.once(_of_source)
    try:
        table = _with_batches(function_of(part)(session), session)
    except (ValueError, OverflowError) as error:
        # Only a number or a text that the user gave can be out of range.
        free = {one.name for one in part.settings.values() if not one.words}
        if not any(given in free for given, _ in selection.settings):
            raise
        raise AnalysisError(
            f"{part.said} has no finite figures with these settings: {error}",
            "use values nearer to the defaults",
        ) from error
    if part.is_ranking:
        doubts = _attribute("verdicts:doubts_sentence")(session)
        table = replace(table, notes=(*table.notes, *([doubts] if doubts else [])))
    return replace(table, devices=session.once(_published))


def _published(session: "Session") -> dict[str, str]:
    return published_names(session.frame)


def check_request(name: str, frame: pl.LazyFrame, selection: Selection) -> None:
    """Checks a table's name, settings and selection before any figure is computed.

    Raises:
        AnalysisError: no such table, part or setting exists, or the part has no target; the remedy
            names the nearest.
        NoDataError: no row has a platform or model of a name.
    """
    part = part_of(name)
    part.refuse_wrong_settings(selection)
    if not part.is_apart:
        refuse_unmatched(of_precisions(frame, selection), selection)
    if not part.is_of_pairs and (selection.target, selection.target_tier) != (None, None):
        raise AnalysisError(
            f"{part.said} shows single platforms and has no target",
            "choose platforms with source or source_tier",
        )


def function_of(part: Part) -> TableFunction:
    """The function of a part; its module is imported here."""
    function: TableFunction = _attribute(part.function)
    return function


def _attribute(name: str) -> Any:
    """`module:name` of `analysis/statistics`."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(f"{_STATISTICS}.{module}"), attribute)


def _of_source(session: "Session") -> "Session":
    selection = session.selection
    return session.narrowed(fits_platform(selection.source, selection.source_tier))


SOURCE_BATCH, TARGET_BATCH = "batch", "target_batch"
"""Columns that state the batch on both sides, for a selection that compares unlike batches.

One batch, or several as `1, 1024`; null where a row is about neither.
"""


def _with_batches(table: Table, session: "Session") -> Table:
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
    return replace(
        table, frame=marked, explanation=(*table.explanation, *explained("unlike-batch"))
    )


def _batches(session: "Session") -> dict[str, str]:
    """The batches behind each name in a row: a platform's key, a tier or a runtime."""
    from fleetrank.analysis.panel.conditions import chosen_platforms

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
