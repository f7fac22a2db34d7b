"""Tables that compare nothing: latency, memory and the first run."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import polars as pl

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.measured.verdicts import with_verdicts
from fleetrank.analysis.stored.cell_values import placement
from fleetrank.analysis.stored.latency_statistic import STATISTIC
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.analysis.tables.text_columns import sentences_of_reasons
from fleetrank.analysis.tables.values import value_text
from fleetrank.foundation.units import BYTES_PER_MIB, NS_PER_MS
from fleetrank.foundation.vocabulary import CellVerdict, Origin
from fleetrank.foundation.workload import IMAGE


def latency_table(session: Session) -> Table:
    """p50, p95 and p99, with the interval of the p50 over processes."""
    scope = session.cells
    columns = {
        "latency_p50_ms": "latency_ns",
        "latency_low_ms": "latency_low_ns",
        "latency_high_ms": "latency_high_ns",
        "latency_p95_ms": "latency_p95_ns",
        "latency_p99_ms": "latency_p99_ns",
    }
    judged = with_verdicts(session)
    shown = judged.select(
        "model", "platform_key", *_scaled(columns, NS_PER_MS),
        "verdict", "repeats_spread", "n_repeats", "sample_kind", "runtime_version", "flags",
        STATISTIC, placement(),
        pl.col("interval_reason").alias("reason"),
    )  # fmt: skip
    matrix = latency_matrix(judged)
    table = Table(
        title="Latency",
        frame=shown,
        notes=scope.notes,
        explanation=explained("latency/latency"),
        brief=Table(
            title="Latency",
            frame=matrix,
            notes=tuple(_matrix_notes(judged)),
            columns=tuple(matrix.columns),
        ),
    )
    return _of_workload(session, table)


MARKS = {CellVerdict.NOISY: " ~", CellVerdict.DOUBTFUL: " ?"}
"""Behind a figure that is not steady."""


def latency_matrix(cells: pl.DataFrame) -> pl.DataFrame:
    """Medians in ms as texts: `model`, and a column for each platform, named by its key.

    The order is that of `own_first`.

    Args:
        cells: of one workload, with their verdicts: a figure that is not steady has its mark.
    """
    marks = cells["verdict"].to_list()
    gap = "" if set(marks).isdisjoint(MARKS) else "  "
    texts = [
        None if ns is None else value_text(ns / NS_PER_MS) + MARKS.get(mark, gap)
        for ns, mark in zip(cells["latency_ns"], marks, strict=True)
    ]
    # Two cards under one name are two cells; the first stands for both.
    wide = cells.with_columns(pl.Series("ms", texts, dtype=pl.String)).pivot(
        "platform_key", index="model", values="ms", aggregate_function="first"
    )
    at = pl.col("model").cast(pl.Enum(own_first(cells, "model")))
    return wide.sort(at).select("model", *own_first(cells, "platform_key"))


def own_first(cells: pl.DataFrame, name: str) -> list[str]:
    """Models or platforms, `name` is the column, in the order of their use to the reader.

    First those with a figure that the user measured, then those on a device that has one of the
    user's models, each from the most figures to the fewest.
    """
    is_own = pl.col("origin") != Origin.IMPORTED
    models = cells.filter(is_own)["model"].implode()
    devices = cells.filter(pl.col("model").is_in(models))["device"].implode()
    found = cells.group_by(name).agg(
        is_own.any().alias("is_own"), pl.col("device").is_in(devices).any(), pl.len().alias("n")
    )
    order = found.sort("is_own", "device", "n", name, descending=[True, True, True, False])
    return order[name].to_list()


def _matrix_notes(judged: pl.DataFrame) -> Iterator[str]:
    """What the figures of the matrix are, their marks, and how wide their intervals are."""
    found = set(judged["verdict"].to_list())
    marks = [f"{mark.strip()} {verdict}" for verdict, mark in MARKS.items() if verdict in found]
    statistics = " or ".join(judged[STATISTIC].drop_nulls().unique().sort())
    yield f"In ms: {', '.join((statistics or 'statistic not stated', *marks))}."
    low, high, middle = (judged[f"latency_{one}ns"] for one in ("low_", "high_", ""))
    reach = (50 * (high - low) / middle).drop_nulls().to_numpy()
    if reach.size:
        yield (
            f"95 % intervals over processes: half-width {np.median(reach):.2g} % of the figure in "
            f"the median, {reach.max():.2g} % at most."
        )
    lacking = judged.filter(low.is_null())["interval_reason"].drop_nulls()
    yield from sentences_of_reasons(lacking.to_list(), "No interval for")


def _of_workload(session: Session, table: Table) -> Table:
    """The table with its workload in the title, and what one inference of it is."""
    workload = session.workload
    if workload == IMAGE:
        return table
    from fleetrank.analysis.statistics.language.token_tables import MEANINGS

    if workload.kind not in MEANINGS:
        return table
    return replace(
        table,
        title=f"{table.title}, {workload}",
        explanation=(MEANINGS[workload.kind], *table.explanation),
    )


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
        "model", "platform_key", *_scaled(columns, BYTES_PER_MIB),
        "memory_metric", "n_repeats", reason.alias("reason"),
    )  # fmt: skip
    metrics = ", ".join(scope.cells["memory_metric"].drop_nulls().unique().sort())
    metric = (
        f"Memory metric: {metrics or 'none'}; compare only figures of one metric and one runtime."
    )
    table = Table(
        title="Peak memory",
        frame=shown,
        notes=(*scope.notes, metric),
        explanation=explained("latency/memory"),
    )
    return _of_workload(session, table)


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
        STATISTIC, ratio.alias("first_to_steady"), "n_repeats", reason.alias("reason"),
    )  # fmt: skip
    cache = "The file may be in the page cache: load_ms does not measure a cold disk."
    table = Table(
        title="Cold start",
        frame=shown,
        notes=(*scope.notes, cache),
        explanation=explained("latency/coldstart"),
    )
    return _of_workload(session, table)


def _scaled(columns: dict[str, str], divisor: float) -> list[pl.Expr]:
    return [(pl.col(source) / divisor).alias(name) for name, source in columns.items()]
