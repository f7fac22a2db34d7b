"""Prompts and segments without a figure: too large, failed, excluded by hand, or ambiguous."""

import math
from collections.abc import Mapping, Sequence

import polars as pl

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.chosen_workload import WORKLOAD, named
from fleetrank.analysis.stored.columns import EXCLUDED
from fleetrank.analysis.stored.scope import of_every_workload
from fleetrank.foundation.units import BYTES_PER_MIB
from fleetrank.foundation.wording import count_of

PLACE = ("model", "platform_key", "card_sha256")
"""What one place is; rows of one name with unlike cards are of two places."""
Reasons = Mapping[tuple[str, ...], Mapping[str, str]]
"""By place and text of the workload."""
_MEMORY = "peak_memory_bytes"


def excluded_rows(session: Session, workloads: Sequence[str]) -> pl.LazyFrame:
    """Attempts at batch 1 of these workloads that are excluded by hand."""
    return of_every_workload(session.frame, session.selection).filter(
        pl.col(EXCLUDED.name).is_not_null(),
        pl.col(WORKLOAD).is_in(list(workloads)),
        pl.col("batch") == 1,
    )


def last_errors(session: Session, workloads: Sequence[str]) -> Reasons:
    """The kind of the last error at batch 1."""
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for one in workloads:
        failed = (
            session.of_workload(one)
            .attempts.filter(
                pl.col("status") != "ok", pl.col("error_kind").is_not_null(), pl.col("batch") == 1
            )
            .sort("started_utc", "repeat", "attempt", nulls_last=False)
            .select(*PLACE, "error_kind")
            .collect()
        )
        for *place, kind in failed.iter_rows():
            found.setdefault(tuple(place), {})[one] = kind
    return found


def failed_note(
    errors: Reasons, measured: pl.DataFrame, workloads: Sequence[str]
) -> tuple[str, ...]:
    """A note on cells without a valid attempt; lists their workloads in the order given."""
    failed = {
        (model, platform, workload)
        for (model, platform, _), ends in errors.items()
        for workload in ends
    }
    if not measured.is_empty():
        failed -= set(measured.select("model", "platform_key", WORKLOAD).iter_rows())
    if not failed:
        return ()
    listed = named([one for one in workloads if any(one == name for *_, name in failed)])
    return (
        f"Dropped: {count_of(len(failed), 'cell')} of {listed} with failed attempts only (table "
        "`trust` with `part=dropped`).",
    )


def reasons_of(
    *, excluded: pl.LazyFrame, unlike: pl.DataFrame, limited: pl.DataFrame, limit_mib: float | None
) -> Reasons:
    """Why a workload without a figure has none, in words that can follow `it is`.

    Args:
        excluded: attempts excluded by hand.
        unlike: cells that differ in their weights or options.
        limited: cells that the limit of memory drops.
        limit_mib: this limit.
    """
    by_hand = excluded.select(*PLACE, WORKLOAD, EXCLUDED.name).unique().sort(EXCLUDED.name)
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for *place, workload, reason in by_hand.collect().iter_rows():
        text = f"excluded by hand: {workload} ({reason.rstrip('.')})"
        found.setdefault(tuple(place), {})[workload] = text
    for *place, workload in unlike.select(*PLACE, WORKLOAD).iter_rows():
        text = f"left out: several cells of {workload} with unlike weights or options"
        found.setdefault(tuple(place), {})[workload] = text
    for *place, workload, memory in limited.select(*PLACE, WORKLOAD, _MEMORY).iter_rows():
        text = _above(workload, memory, limit_mib or 0)
        found.setdefault(tuple(place), {})[workload] = text
    return found


def _above(workload: str, memory: float | None, limit_mib: float) -> str:
    if not memory:
        return f"without a peak memory, which the limit of {limit_mib:g} MiB needs: {workload}"
    needed = math.ceil(memory / BYTES_PER_MIB)
    return f"above the limit of {limit_mib:g} MiB: {workload} needs {needed:,} MiB"
