"""The audit of single rows and cells, before any platform is compared with another."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.measured.audit import OUTLIER_FACTOR
from fleetrank.analysis.statistics.measured.finding import Finding, Problem, exclude_command
from fleetrank.analysis.statistics.measured.units import sentinels
from fleetrank.analysis.stored.columns import NS_PER_MS
from fleetrank.analysis.stored.scope import differences
from fleetrank.foundation.wording import count_of

_TIME_UNITS_NS = (1.0, 1e3, 1e6, 1e9)
_MEMORY_UNITS_BYTES = (1.0, 2.0**10, 1e6, 2.0**20)


def of_rows(session: Session) -> Iterator[Finding]:
    """Findings that need no comparable platform."""
    cells = session.cells.cells
    yield from _mixed(cells)
    yield from _sentinels(cells)
    yield from _against_itself(session)


def _mixed(cells: pl.DataFrame) -> Iterator[Finding]:
    for platform, text in differences(cells).items():
        yield Finding(
            what=Problem.DIFFERENT_METRICS if "memory_metric:" in text else Problem.DIFFERENT_FACTS,
            platform_key=platform,
            model=None,
            figure=None,
            detail=text,
            what_to_do="it is left out of rankings; choose one sweep, or measure it again",
        )


def _sentinels(cells: pl.DataFrame) -> Iterator[Finding]:
    for column, units in (
        ("latency_ns", _TIME_UNITS_NS),
        ("peak_memory_bytes", _MEMORY_UNITS_BYTES),
    ):
        values = cells[column].cast(pl.Float64).to_numpy().astype(np.float64)
        for row in cells.filter(pl.Series(sentinels(values, units))).iter_rows(named=True):
            yield Finding(
                what=Problem.SENTINEL,
                platform_key=row["platform_key"],
                model=row["model"],
                figure=float(row[column]),
                detail=f"{column} is a code for 'missing' in some unit",
                what_to_do="import it as missing: list it under [missing] in the mapping",
                command=exclude_command(
                    Problem.SENTINEL, row["sweep_id"], row["model"], row["platform_key"]
                ),
            )


def _against_itself(session: Session) -> Iterator[Finding]:
    """The newest sweep of a model on a platform against the median of its older ones."""
    key = ("platform_key", "model", "input_size")
    sweeps = (
        session.attempts.filter((pl.col("status") == "ok") & (pl.col("latency_p50_ns") > 0))
        .group_by(*key, "sweep_id")
        .agg(pl.col("latency_p50_ns").median(), pl.col("started_utc").min())
        .sort("started_utc", "sweep_id")
        .group_by(key, maintain_order=True)
        .agg(
            pl.col("latency_p50_ns").last().alias("newest"),
            pl.col("sweep_id").last().alias("newest_sweep"),
            pl.col("latency_p50_ns").slice(0, pl.len() - 1).median().alias("older"),
            (pl.len() - 1).alias("n_older"),
        )
        .filter(pl.col("n_older") > 0)
        .collect()
    )
    for row in sweeps.iter_rows(named=True):
        ratio = row["newest"] / row["older"]
        if max(ratio, 1 / ratio) > OUTLIER_FACTOR:
            yield Finding(
                what=Problem.AGAINST_ITSELF,
                platform_key=row["platform_key"],
                model=row["model"],
                figure=ratio,
                detail=(
                    f"newest {row['newest'] / NS_PER_MS:.4g} ms, median of "
                    f"{count_of(row['n_older'], 'older sweep')} {row['older'] / NS_PER_MS:.4g} ms"
                ),
                what_to_do=(
                    "measure it again, or exclude the wrong one; do not average the two; "
                    "the command excludes the newest"
                ),
                command=exclude_command(
                    Problem.AGAINST_ITSELF,
                    row["newest_sweep"],
                    row["model"],
                    row["platform_key"],
                ),
            )
