"""What is doubtful: flagged cells, dropped attempts, findings of the audit, a disturbed host."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import polars as pl

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.measured.audit_table import findings_table
from fleetrank.analysis.statistics.measured.host_table import host_table, waits_table
from fleetrank.analysis.stored.cell_notes import origin_banners
from fleetrank.analysis.stored.cells_table import DISAGREE_SHARE, dropped_attempts
from fleetrank.analysis.stored.columns import ORIGINS
from fleetrank.analysis.stored.scope import differences, select_stored
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.table_settings import LIST
from fleetrank.foundation.wording import count_of


def quality_table(session: Session) -> Table:
    """Flags of each cell, attempts that no figure uses, findings of the audit, host or waits."""
    return _LISTS[LIST.chosen(session.selection)](session)


def _flags(session: Session) -> Table:
    """Quality flags of each model on each platform, the worst first."""
    scope = session.cells
    differing = differences(scope.cells)
    mixed = pl.col("platform_key").replace_strict(differing, default=None, return_dtype=pl.String)
    shown = (
        scope.cells.select(
            "model", "platform_key", "n_repeats", "sample_count", "repeats_spread", "flags",
            mixed.alias("mixes"), pl.col("interval_reason").alias("reason"),
        )
        .sort(
            pl.col("flags").list.len(), "repeats_spread", "model", "platform_key",
            descending=[True, True, False, False], nulls_last=True,
        )
    )  # fmt: skip
    counts = scope.cells["flags"].explode().drop_nulls().value_counts().sort("flags").iter_rows()
    listed = ", ".join(f"{flag} {count}" for flag, count in counts)
    explanation = (
        "Flagged rows are kept: dropping them would bias the choice of models.",
        f"repeats_disagree: range of the process medians above {100 * DISAGREE_SHARE:g} % of "
        "their median. mixes: facts that differ inside the platform and keep it out of rankings.",
    )
    notes = (*scope.notes, f"Rows under each flag: {listed or 'none'}.")
    return Table(title="Quality", frame=shown, notes=notes, explanation=explanation)


def _dropped(session: Session) -> Table:
    """All attempts that no figure uses, with the reason.

    Raises:
        NoDataError: the selection has no attempts at all.
    """
    selection = replace(session.selection, workload=str(session.workload))
    attempts = select_stored(session.frame, selection)
    total = attempts.select(pl.len()).collect().item()
    if total == 0:
        raise NoDataError(
            "no measurement matches the selection",
            "widen the selection; `include_simulated=true` adds virtual and simulated devices",
        )
    dropped = dropped_attempts(attempts)
    # Without a usable attempt there are no cells, and no platform that could mix facts.
    unlike = differences(session.cells.cells) if dropped.height < total else {}
    of_any_origin = select_stored(session.frame, replace(selection, origins=ORIGINS))
    unselected = of_any_origin.filter(~pl.col("origin").is_in(list(selection.origins)))
    others = unselected.group_by("origin").len().sort("origin").collect()
    counts = dropped["reason"].value_counts().sort("reason").iter_rows()
    notes = [
        *origin_banners(attempts),
        f"{dropped.height} of {count_of(total, 'attempt')} are not used in any figure: "
        + (", ".join(f"{reason} {count}" for reason, count in counts) or "none")
        + ".",
    ]
    notes += [
        f"{count_of(count, 'attempt')} of origin {origin} not selected."
        for origin, count in others.iter_rows()
    ]
    notes += [
        f"{platform} is left out of rankings because it mixes {text}."
        for platform, text in unlike.items()
    ]
    return Table(title="Dropped", frame=dropped, notes=tuple(notes))


_LISTS: Mapping[str, Callable[[Session], Table]] = MappingProxyType(
    {
        "flags": _flags,
        "dropped": _dropped,
        "findings": findings_table,
        "host": host_table,
        "waits": waits_table,
    }
)
