"""One sweep: its results per device, its failures, and the versions that it used."""

import polars as pl

from fleetrank.analysis.dossiers.dossier import MAX_ROWS, Dossier, failures_table, rows_about
from fleetrank.analysis.stored.exclusions import exclusion_notes
from fleetrank.analysis.tables.table import Table

_VERSIONS = ("fleetrank_version", "git_commit", "python_version", "exporter_versions", "seed")


def sweep_dossier(frame: pl.LazyFrame, sweep: str) -> Dossier:
    """The facts from the published rows of a sweep, including rows excluded by hand.

    Raises:
        NoDataError: the sweep has no published rows.
    """
    rows = rows_about(frame, "sweep_id", sweep)
    return Dossier(
        tables=(_devices(rows), _failure_kinds(rows), failures_table(rows), _versions(rows))
    )


def _devices(rows: pl.DataFrame) -> Table:
    is_ok = pl.col("status") == "ok"
    frame = (
        rows.group_by("device", "origin")
        .agg(
            pl.col("platform_key").n_unique().alias("n_platforms"),
            pl.col("model").n_unique().alias("n_models"),
            pl.len().alias("n_attempts"),
            is_ok.sum().alias("n_ok"),
            (~is_ok).sum().alias("n_failed"),
            pl.col("flags").explode().drop_nulls().unique().sort(),
            pl.col("started_utc").min().alias("first_utc"),
            pl.col("finished_utc").max().alias("last_utc"),
        )
        .sort("device")
    )
    return Table(title="Devices", frame=frame, notes=exclusion_notes(rows.lazy()))


def _failure_kinds(rows: pl.DataFrame) -> Table:
    frame = (
        rows.filter(pl.col("status") != "ok")
        .group_by("error_kind", "error_stage")
        .agg(
            pl.len().alias("n_attempts"),
            pl.col("model").n_unique().alias("n_models"),
            pl.col("device").n_unique().alias("n_devices"),
        )
        .sort("n_attempts", "error_kind", "error_stage", descending=[True, False, False])
    )
    return Table(title="Failures by kind", frame=frame)


def _versions(rows: pl.DataFrame) -> Table:
    named = rows.select("runtime", "runtime_version").drop_nulls().unique().sort(pl.all())
    pairs = [{"what": runtime, "version": version} for runtime, version in named.iter_rows()]
    for name in _VERSIONS:
        pairs += [
            {"what": name, "version": str(value)}
            for value in rows[name].drop_nulls().unique().sort()
        ]
    frame = pl.DataFrame(pairs, schema={"what": pl.String, "version": pl.String})
    return Table(title="Versions of the rows", frame=frame.head(MAX_ROWS))
