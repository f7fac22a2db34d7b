"""Whether the figure of a cell can be used: steady, noisy or doubtful, and what to do about it.

A cell is `doubtful` if the audit, the placement, the thermal state or the value itself speaks
against it, `noisy` if two of its processes differ by more than 10 % on average or other programs
used its cores, and else `steady`. One process alone is never called steady.
Flags are reasons behind a verdict, and no verdict of their own: on a host with as many cores as
threads nearly every process has some, and their medians agree all the same.

The part `quality` counts what is doubtful: flagged cells, dropped attempts, findings of the audit,
a disturbed host.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import polars as pl

from fleetrank.analysis.errors import NoDataError, NotComparableError
from fleetrank.analysis.labels import labels_of
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.audit.audit_panel import off_the_line
from fleetrank.analysis.statistics.audit.audit_rows import against_itself, replaced, row_sentinels
from fleetrank.analysis.statistics.audit.finding import AuditFinding
from fleetrank.analysis.stored.cell_notes import origin_banners
from fleetrank.analysis.stored.cell_values import (
    DISAGREE_SHARE,
    NOISY_SHARE,
    TAKEN_SHARE,
    dropped_attempts,
    is_noisy,
)
from fleetrank.analysis.stored.columns import ORIGINS
from fleetrank.analysis.stored.disturbance import MIN_CLOCK, OTHERS, far_from_history, has_flag
from fleetrank.analysis.stored.name_patterns import fits_platform
from fleetrank.analysis.stored.scope import differences, select_stored
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.foundation.units import NS_PER_MS
from fleetrank.foundation.vocabulary import CellVerdict, Design, Flag, Origin, Problem
from fleetrank.foundation.wording import count_of, with_flags

_PLACE = ("sweep_id", "model", "platform_key")
_NAMED = 2
"""Pairs of models that a sentence names."""
_WHY = "why"


def with_verdicts(session: Session) -> pl.DataFrame:
    """The selected cells with `verdict` and `why`, which is null where nothing speaks against one.

    Raises:
        NoDataError: no row matches the selection.
    """
    return session.once_of_rows(_with_verdicts)


def _with_verdicts(session: Session) -> pl.DataFrame:
    schema = dict.fromkeys((*_PLACE, "audit"), pl.String())
    rows = [
        (*one.wrong_cell, one.platform_key, one.detail)
        for one in session.once_of_rows(_against_cells)
        if one.wrong_cell
    ]
    audit = pl.DataFrame(rows, schema=schema, orient="row").unique(_PLACE, keep="last")
    cells = session.cells.cells.join(audit, on=_PLACE, how="left", maintain_order="left")
    verdict = (
        pl.when(pl.col(_WHY).is_not_null())
        .then(pl.lit(CellVerdict.DOUBTFUL))
        .when(is_noisy())
        .then(pl.lit(CellVerdict.NOISY))
        .when(pl.col("process_gap").is_not_null())
        .then(pl.lit(CellVerdict.STEADY))
    )
    judged = cells.with_columns(_doubt().alias(_WHY)).with_columns(verdict=verdict)
    percent = (100 * pl.col("process_gap")).round(0).cast(pl.Int64)
    spread = pl.format("two processes differ by {} % on average", percent)
    taken = (100 * pl.col("taken_share")).round(0).cast(pl.Int64)
    others = pl.format("other programs used {} % of its cores", taken)
    reason = pl.when(pl.col("process_gap") > NOISY_SHARE).then(spread).otherwise(others)
    why = pl.when(pl.col("verdict") == CellVerdict.NOISY).then(reason).otherwise(_WHY).alias(_WHY)
    return judged.with_columns(why).drop("audit")


def _against_cells(session: Session) -> tuple[AuditFinding, ...]:
    """Findings about one cell that make its figures doubtful."""
    return tuple(_each_against_a_cell(session))


def _each_against_a_cell(session: Session) -> Iterator[AuditFinding]:
    with contextlib.suppress(NotComparableError):
        yield from off_the_line(session)
    # The last finding about a cell is its reason: these name a cause.
    yield from row_sentinels(session.cells.cells)
    yield from against_itself(session)
    yield from replaced(session)


def _doubt() -> pl.Expr:
    """What makes a cell doubtful, the first that holds."""
    partly = pl.format("{} of {} products with integers", "integer_products", "products")
    is_partly = pl.col("integer_products") < pl.col("products")
    return pl.coalesce("audit", _own_cause(), pl.when(is_partly).then(partly))


def _own_cause() -> pl.Expr:
    """What was wrong while a cell was measured, the first that holds."""
    return (
        pl.when(pl.col("latency_ns") <= 0)
        .then(pl.lit("its latency is not above 0"))
        .when(pl.col("flags").list.contains(Flag.CLOCKS_DISAGREE))
        .then(pl.lit("two clocks disagree about it"))
        .when(pl.col("flags").list.contains(Flag.NAN_OUTPUTS))
        .then(pl.lit("its outputs are not numbers"))
        .when(pl.col("backend_nodes") == 0)
        .then(pl.format("nothing ran on {}", "backend"))
        .when(has_flag(Flag.THROTTLED, Flag.HOT))
        .then(pl.lit("the device was hot or slowed down"))
    )


Doubts = Mapping[tuple[str, str], str]
"""Reasons by model of the panel and platform key."""


def doubts_of(session: Session) -> tuple[Doubts, Doubts]:
    """Doubtful latencies: those with a cause of their own, and those only unlike the others.

    The order that an unlike one shows may be true: what is usual on other platforms cannot tell.
    """
    said: dict[tuple[str, str, str], AuditFinding] = {}
    for one in session.once_of_rows(_against_cells):
        if one.wrong_cell:
            said[*one.wrong_cell, str(one.platform_key)] = one
    causes, unlike = dict[tuple[str, str], str](), dict[tuple[str, str], str]()
    cells = session.comparable.cells.with_columns(cause=_own_cause())
    for sweep, model, key, name, cause in cells.select(*_PLACE, "identity", "cause").iter_rows():
        found = said.get((sweep, model, key))
        is_unlike = found is not None and found.what is Problem.AGAINST_THE_FIT
        if is_unlike and found and cause is None:
            unlike[name, key] = found.detail
        elif why := (found.detail if found and not is_unlike else cause):
            causes[name, key] = why
    return causes, unlike


def doubts_sentence(session: Session) -> str | None:
    """The doubtful cells that a ranking contains, for its notes; `None` without any."""
    chosen = session.selection
    is_in = fits_platform(chosen.source, chosen.source_tier) | fits_platform(
        chosen.target, chosen.target_tier
    )
    cells = with_verdicts(session).filter(pl.col("verdict") == CellVerdict.DOUBTFUL, is_in)
    if cells.is_empty():
        return None
    names = [
        f"{model} on {key}" for model, key in cells.select("model", "platform_key").iter_rows()
    ]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"This table contains doubtful figures: {'; '.join(names[:_NAMED])}{more}."


def sweep_sentences(cells: pl.DataFrame) -> tuple[str, ...]:
    """For each sweep with noisy cells: cause, cure, and which orders are not decided.

    Args:
        cells: as `with_verdicts` gives them.
    """
    noisy = cells.filter(pl.col("verdict") == CellVerdict.NOISY)
    sweeps = noisy["sweep_id"].unique(maintain_order=True)
    return tuple(_sentence(cells.filter(sweep_id=sweep), sweep) for sweep in sweeps)


def _sentence(cells: pl.DataFrame, sweep: str) -> str:
    noisy = cells.filter(pl.col("verdict") == CellVerdict.NOISY)
    are = "is" if noisy.height == 1 else "are"
    counts = f"{noisy.height} of {count_of(cells.height, 'cell')} of sweep {sweep} {are} noisy"
    # In rounds the effects of the host are taken out of an order.
    takes_turns = (cells["design"] == Design.ROUNDS).any()
    changes = "" if takes_turns else _undecided(cells)
    said = f"{counts}{_spreads(cells)}."
    if (noisy["origin"] == Origin.IMPORTED).all():
        return f"{said} They are imported and cannot be measured again here.{changes}"
    cause, cure = _cause(noisy, "more rounds" if takes_turns else "rounds")
    again = f"measure them again: `fleetrank sweep resume {sweep}` with `repeat_noisy=true`"
    return f"{said} {cause}; {cure}, and {with_flags(again)}.{changes}"


def history_sentences(cells: pl.DataFrame, attempts: pl.LazyFrame) -> tuple[str, ...]:
    """Cells of a sweep that are far from what they were in other sweeps, and why.

    Args:
        cells: as `with_verdicts` gives them, of one sweep.
        attempts: of all sweeps.
    """
    return tuple(map(_changed, far_from_history(cells, attempts).iter_rows(named=True)))


def _changed(cell: Mapping[str, Any]) -> str:
    ms, usual_ms = cell["latency_ns"] / NS_PER_MS, cell["usual_ns"] / NS_PER_MS
    sweeps = count_of(cell["n_sweeps"], "other sweep")
    return (
        f"{cell['model']} on {cell['platform_key']} took {ms:.3g} ms, {cell['factor']:.2g} times "
        f"the {usual_ms:.3g} ms of {sweeps}: {_causes(cell)}; compare models by `fleetrank ab`, "
        "where they take turns"
    )


_SLOWED = {
    Flag.NICED: "it ran at lower priority (niceness)",
    Flag.CPU_QUOTA: "the CPU quota of its control group stopped it",
    Flag.THROTTLED: "the clock fell",
    Flag.HOT: "the device was hot",
}


def _causes(cell: Mapping[str, Any]) -> str:
    """What its rows record of work beside it, its priority, its quota and its clock."""
    taken, flags = cell["taken_share"] or 0.0, cell["flags"] or ()
    said = [words for flag, words in _SLOWED.items() if flag in flags]
    if taken > TAKEN_SHARE:
        said.insert(0, f"other programs used {100 * taken:.0f} % of its cores")
    elif not {*OTHERS}.isdisjoint(flags):
        said.insert(0, "other programs used the host")
    clock_mhz, usual_mhz = cell["clock_mhz"], cell["usual_mhz"]
    if clock_mhz and usual_mhz and not MIN_CLOCK < clock_mhz / usual_mhz < 1 / MIN_CLOCK:
        said.append(f"its clock was {clock_mhz:.0f} MHz, there {usual_mhz:.0f}")
    return ", ".join(said) or "the cause is not recorded"


def _spreads(cells: pl.DataFrame) -> str:
    """How much results vary where they do, by the number of threads; empty if they do nowhere."""
    found = (
        cells.filter(pl.col("process_gap") > NOISY_SHARE)
        .group_by("threads")
        .agg((100 * pl.col("process_gap").median()).alias("percent"))
        .sort("percent", descending=True)
    )
    parts = [
        (f"at {count_of(threads, 'thread')} " if threads and found.height > 1 else "")
        + f"by {percent:.0f} %"
        for threads, percent in found.iter_rows()
    ]
    return f": results vary {', '.join(parts)}" if parts else ""


def _cause(noisy: pl.DataFrame, rounds: str) -> tuple[str, str]:
    """Why the cells are noisy, and what helps, such as `rounds`."""
    has_all = (pl.col("threads") >= pl.col("logical_cores")).fill_null(value=False)
    for condition, cause, cure in (
        (has_flag(Flag.CPU_QUOTA), "A CPU quota stopped the workers", "raise it"),
        (has_all, "All cores were in use", "leave one free"),
        (has_flag(*OTHERS), "Other programs used the host", "stop them"),
        (has_flag(Flag.NICED), "The workers ran at lower priority", "start without nice"),
    ):
        if 2 * noisy.filter(condition).height > noisy.height:
            return cause, f"{cure} or use {rounds}"
    return "The cause is not recorded", f"use {rounds}"


def _undecided(cells: pl.DataFrame) -> str:
    """Neighbours in the order of a platform whose ratio may be 1, one of them noisy."""
    labels = labels_of(cells["platform_key"])
    found: list[str] = []
    for (key,), rows in cells.filter(pl.col("latency_ns") > 0).group_by(
        "platform_key", maintain_order=True
    ):
        ordered = rows.sort("latency_ns").select("model", "latency_ns", "log_reach", "verdict")
        listed: Sequence[tuple[str, float, float | None, str | None]] = ordered.rows()
        for (a, x, of_a, is_a), (b, y, of_b, is_b) in pairwise(listed):
            reach = math.hypot(of_a or 0.0, of_b or 0.0)
            if CellVerdict.NOISY in (is_a, is_b) and math.log(y / x) < reach:
                found.append(f"{a} and {b} ({labels.names[str(key)]})")
    more = f", nor {count_of(len(found) - _NAMED, 'more order')}" if len(found) > _NAMED else ""
    return f" Not decided: the order of {', of '.join(found[:_NAMED])}{more}." if found else ""


def flags_table(session: Session) -> Table:
    """Quality flags of each model on each platform, the worst first."""
    scope = session.cells
    differing = differences(scope.cells)
    mixed = pl.col("platform_key").replace_strict(differing, default=None, return_dtype=pl.String)
    shown = (
        with_verdicts(session).select(
            "model", "platform_key", "verdict", "why", "n_repeats", "sample_count",
            "repeats_spread", "flags",
            mixed.alias("mixes"), pl.col("interval_reason").alias("reason"),
        )
        .sort(
            pl.col("flags").list.len(), "repeats_spread", "model", "platform_key",
            descending=[True, True, False, False], nulls_last=True,
        )
    )  # fmt: skip
    counts = scope.cells["flags"].explode().drop_nulls().value_counts().sort("flags").iter_rows()
    listed = ", ".join(f"{flag} {count}" for flag, count in counts)
    explanation = explained("trust/flags", {"disagree_percent": 100 * DISAGREE_SHARE})
    said = sweep_sentences(with_verdicts(session))
    notes = (*scope.notes, *said, f"Rows under each flag: {listed or 'none'}.")
    return Table(title="Quality", frame=shown, notes=notes, explanation=explanation)


def dropped_table(session: Session) -> Table:
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
