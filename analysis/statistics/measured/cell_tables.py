"""Tables of single cells: latency, memory, cold start, quality flags, and rows left out."""

import polars as pl

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.cells_table import DISAGREE_SHARE, dropped_attempts
from fleetrank.analysis.stored.columns import NS_PER_MS
from fleetrank.analysis.stored.scope import differences, select_stored
from fleetrank.analysis.tables.table import Table
from fleetrank.foundation.wording import count_of

_BYTES_PER_MIB = 2**20
_MEDIANS = "Each figure is the median over repeats of the figures of single processes."


def latency_table(session: Session) -> Table:
    """p50, p95 and p99 per model and platform, with the interval of the p50 over processes."""
    scope = session.cells
    columns = {
        "latency_p50_ms": "latency_ns",
        "latency_low_ms": "latency_low_ns",
        "latency_high_ms": "latency_high_ns",
        "latency_p95_ms": "latency_p95_ns",
        "latency_p99_ms": "latency_p99_ns",
    }
    shown = scope.cells.select(
        "model", "platform_key", *_scaled(columns, NS_PER_MS),
        "repeats_spread", "n_repeats", "sample_kind", "runtime_version", "flags",
        pl.col("interval_reason").alias("reason"),
    )  # fmt: skip
    interval = (
        "latency_low_ms to latency_high_ms: interval of the median over processes by order "
        f"statistics, coverage {_coverage(scope.cells)}."
    )
    return Table(title="Latency", frame=shown, notes=scope.notes, explanation=(_MEDIANS, interval))


def memory_table(session: Session) -> Table:
    """Peaks above the baseline while running and while loading, with their metric."""
    scope = session.cells
    columns = {
        "peak_memory_mib": "peak_memory_bytes",
        "load_peak_memory_mib": "load_peak_memory_bytes",
    }
    reason = pl.when(pl.col("peak_memory_bytes").is_null()).then(
        pl.lit("the tool gives no memory figure")
    )
    shown = scope.cells.select(
        "model", "platform_key", *_scaled(columns, _BYTES_PER_MIB),
        "memory_metric", "n_repeats", reason.alias("reason"),
    )  # fmt: skip
    metrics = ", ".join(scope.cells["memory_metric"].drop_nulls().unique().sort())
    metric = (
        f"Memory metric: {metrics or 'none'}; compare only figures of one metric and one runtime."
    )
    return Table(
        title="Peak memory", frame=shown, notes=(*scope.notes, metric), explanation=(_MEDIANS,)
    )


def coldstart_table(session: Session) -> Table:
    """Load and first inference, and the ratio of the first one to a steady inference."""
    scope = session.cells
    columns = {
        "load_ms": "load_ns",
        "first_inference_ms": "first_inference_ns",
        "latency_p50_ms": "latency_ns",
    }
    has_steady = pl.col("latency_ns") > 0
    ratio = pl.when(has_steady).then(pl.col("first_inference_ns") / pl.col("latency_ns"))
    reason = pl.when(pl.col("load_ns").is_null() | pl.col("first_inference_ns").is_null()).then(
        pl.lit("the tool does not time loading")
    )
    shown = scope.cells.select(
        "model", "platform_key", *_scaled(columns, NS_PER_MS),
        ratio.alias("first_to_steady"), "n_repeats", reason.alias("reason"),
    )  # fmt: skip
    cache = "The file may be in the page cache: load_ms does not measure a cold disk."
    return Table(
        title="Cold start", frame=shown, notes=(*scope.notes, cache), explanation=(_MEDIANS,)
    )


def quality_table(session: Session) -> Table:
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


def dropped_table(session: Session) -> Table:
    """All attempts that no figure uses, with the reason.

    Raises:
        NoDataError: the selection has no attempts at all.
    """
    selection = session.selection
    attempts = select_stored(session.frame, selection)
    total = attempts.select(pl.len()).collect().item()
    if total == 0:
        raise NoDataError(
            "no measurement matches the selection",
            "widen the selection; `--include-simulated` adds virtual and simulated devices",
        )
    dropped = dropped_attempts(attempts)
    # Without a usable attempt there are no cells, and no platform that could mix facts.
    unlike = differences(session.cells.cells) if dropped.height < total else {}
    origins = session.frame.filter(~pl.col("origin").is_in(list(selection.origins)))
    others = origins.group_by("origin").len().sort("origin").collect()
    counts = dropped["reason"].value_counts().sort("reason").iter_rows()
    notes = [
        f"{dropped.height} of {count_of(total, 'attempt')} are not used in any figure: "
        + (", ".join(f"{reason} {count}" for reason, count in counts) or "none")
        + "."
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


def _scaled(columns: dict[str, str], divisor: float) -> list[pl.Expr]:
    return [(pl.col(source) / divisor).alias(name) for name, source in columns.items()]


def _coverage(cells: pl.DataFrame) -> str:
    known = cells["interval_coverage"].drop_nulls().unique().sort()
    if known.is_empty():
        return "none here"
    ends = sorted({f"{100 * value:.1f} %" for value in (known[0], known[-1])})
    return " to ".join(ends)
