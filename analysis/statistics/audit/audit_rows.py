"""The audit of single rows and cells, before any platform is compared with another."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.audit.audit import OUTLIER_FACTOR
from fleetrank.analysis.statistics.audit.finding import AuditFinding
from fleetrank.analysis.statistics.audit.unit_slips import common_slip, sentinels
from fleetrank.analysis.stored.latency_statistic import STATISTIC
from fleetrank.analysis.stored.load import last_attempts, release_order
from fleetrank.analysis.stored.scope import differences
from fleetrank.foundation.units import NS_PER_MS
from fleetrank.foundation.vocabulary import Problem
from fleetrank.foundation.wording import count_of

_TIME_UNITS_NS = (1.0, 1e3, 1e6, 1e9)
_FIGURES = (
    "latency_p50_ns", "latency_p95_ns", "latency_mean_ns", "peak_memory_bytes", "energy_mj",
    "first_inference_ns",
)  # fmt: skip
_ROW = ("sweep_id", "repeat", "attempt")
_MEMORY_UNITS_BYTES = (1.0, 2.0**10, 1e6, 2.0**20)


def of_rows(session: Session) -> Iterator[AuditFinding]:
    """Findings that need no comparable platform."""
    cells = session.cells.cells
    yield from _mixed(cells)
    yield from row_sentinels(cells)
    yield from against_itself(session)
    yield from _slipped_since(session)
    yield from replaced(session)
    yield from _repeated(session)


def _mixed(cells: pl.DataFrame) -> Iterator[AuditFinding]:
    for platform, text in differences(cells).items():
        yield AuditFinding(
            what=Problem.DIFFERENT_METRICS if "memory_metric:" in text else Problem.DIFFERENT_FACTS,
            platform_key=platform,
            detail=text,
            what_to_do="it is left out of rankings; choose one sweep, or measure it again",
        )


def row_sentinels(cells: pl.DataFrame) -> Iterator[AuditFinding]:
    """Cells whose figure is a number that stands for a missing one."""
    for column, units in (
        ("latency_ns", _TIME_UNITS_NS),
        ("peak_memory_bytes", _MEMORY_UNITS_BYTES),
    ):
        values = cells[column].cast(pl.Float64).to_numpy().astype(np.float64)
        for row in cells.filter(pl.Series(sentinels(values, units))).iter_rows(named=True):
            yield AuditFinding(
                what=Problem.SENTINEL,
                platform_key=row["platform_key"],
                model=row["model"],
                figure=float(row[column]),
                detail=f"{column} is a code for 'missing' in some unit",
                what_to_do="import it as missing: list it under [missing] in the mapping",
                wrong_cell=(row["sweep_id"], row["model"]),
            )


def against_itself(session: Session) -> Iterator[AuditFinding]:
    """The newest sweep of a model on a platform against the median of its older ones."""
    key = ("platform_key", "model", "input_size", STATISTIC)
    sweeps = (
        session.attempts.filter((pl.col("status") == "ok") & (pl.col("latency_p50_ns") > 0))
        .group_by(*key, "sweep_id")
        .agg(pl.col("latency_p50_ns").median(), pl.col("started_utc").min())
        .sort(release_order(), "started_utc", "sweep_id")
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
            yield AuditFinding(
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
                wrong_cell=(row["newest_sweep"], row["model"]),
            )


def _slipped_since(session: Session) -> Iterator[AuditFinding]:
    """Platforms whose memory is in another unit than in their older sweeps."""
    key = ("platform_key", "memory_metric", "model", "input_size")
    ratio = pl.col("memory").last() / pl.col("memory").slice(0, pl.len() - 1).median()
    platforms = (
        session.attempts.filter((pl.col("status") == "ok") & (pl.col("peak_memory_bytes") > 0))
        .group_by(*key, "sweep_id")
        .agg(pl.col("peak_memory_bytes").median().alias("memory"), pl.col("started_utc").min())
        .sort(release_order(), "started_utc", "sweep_id")
        .group_by(key)
        .agg(ratio.log().alias("change"))
        .drop_nulls("change")
        .group_by("platform_key")
        .agg("change")
        .sort("platform_key")
        .collect()
    )
    for platform, changes in platforms.iter_rows():
        slip = common_slip(np.array(changes))
        if slip is not None:
            yield AuditFinding(
                what=Problem.SLIPPED_MEMORY,
                platform_key=platform,
                figure=slip,
                detail=(
                    f"peak memory of {count_of(len(changes), 'model')} is {slip:.7g} times that of "
                    "the older sweeps"
                ),
                what_to_do="check the unit of peak memory in both sources (MB, MiB, KiB, bytes)",
            )


def replaced(session: Session) -> Iterator[AuditFinding]:
    """Models that the newest release of a source ran on another unit than the one before."""
    settings = pl.col("runtime_settings")
    layers = settings.str.json_path_match("$.layers").str.extract_all(r"[a-z]+\":[1-9]")
    units = layers.list.eval(pl.element().str.extract(r"^([a-z]+)")).list.sort().list.join("+")
    # A source may state the precision of the unit: the same file is fp16 on one, fp32 on another.
    key = ("source", "model", "device", "runtime", "options", "is_int8")
    releases = (
        session.attempts.filter((pl.col("status") == "ok") & pl.col("source").is_not_null())
        .with_columns(
            (pl.col("precision") == "int8").alias("is_int8"),
            pl.concat_str("backend", units, separator=" with layers on ", ignore_nulls=True)
            .alias("placement"),
        )
        .filter(pl.col("backend").is_not_null())
        .group_by(*key, "sweep_id")
        .agg(
            pl.col("placement").unique().sort().str.join(", "),
            pl.col("platform_key").first(),
            pl.col("started_utc").min(),
        )
        .sort(release_order(), "started_utc", "sweep_id")
        .group_by(key, maintain_order=True)
        .agg(
            pl.col("placement", "platform_key", "sweep_id").last(),
            pl.col("placement").get(-2, null_on_oob=True).alias("before"),
        )
        .filter(pl.col("placement") != pl.col("before"))
        .collect()
    )  # fmt: skip
    for row in releases.iter_rows(named=True):
        yield AuditFinding(
            what=Problem.PLACEMENT,
            platform_key=row["platform_key"],
            model=row["model"],
            detail=f"ran on {row['placement']}; in the release before on {row['before']}",
            what_to_do="the figures of the two releases are of different units: compare neither",
            wrong_cell=(row["sweep_id"], row["model"]),
        )


def _repeated(session: Session) -> Iterator[AuditFinding]:
    """Rows of one cell whose figures are all equal, by platform; simulated rows may be equal.

    A job that a publisher repeats in a later release is one measurement and not reported.
    """
    job = pl.struct("source", pl.col("runtime_settings").str.json_path_match("$.job_id"))
    has_job = pl.col("runtime_settings").str.json_path_match("$.job_id").is_not_null()
    row = pl.when(has_job).then(job.hash()).otherwise(pl.struct(_ROW).hash())
    groups = (
        last_attempts(session.attempts)
        .filter((pl.col("latency_p50_ns") > 0) & pl.col("origin").is_in(["measured", "imported"]))
        .with_columns(row.alias("row"))
        .group_by("platform_key", "model", "cell_key", *_FIGURES)
        .agg(pl.col("row").n_unique().alias("n"), pl.col("sweep_id").unique().sort())
        .filter(pl.col("n") > 1)
        .group_by("platform_key", "sweep_id")
        .agg(pl.col("n").sum(), pl.col("model").unique().sort())
        .sort("platform_key", "sweep_id")
        .collect()
    )
    for platform, sweeps, n, models in groups.iter_rows():
        model = models[0] if len(models) == 1 else None
        yield AuditFinding(
            what=Problem.REPEATED_ROWS,
            platform_key=platform,
            model=model,
            figure=float(n),
            detail=(
                f"{count_of(n, 'row')} of {count_of(len(models), 'model')} in {', '.join(sweeps)} "
                "have the same figures as another row of the same cell"
            ),
            what_to_do="count each measurement once: remove the copies at the source, or "
            "exclude the later sweep",
            wrong_cell=model and (sweeps[-1], model),
        )
