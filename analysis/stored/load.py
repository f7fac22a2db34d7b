"""Reads stored measurements lazily: samples stay on disk until a caller uses them."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.stored.columns import DEFAULT_ORIGINS, SCHEMA, SCHEMA_VERSION
from fleetrank.analysis.stored.exclusions import excluded_column, not_excluded, read_exclusions
from fleetrank.analysis.stored.part_files import is_pending, part_files
from fleetrank.foundation.checksum import read_checked_object
from fleetrank.foundation.errors import BadFileError


def load_measurements(
    results: Path, *, sweep: str | None = None, origins: Sequence[str] = DEFAULT_ORIGINS
) -> pl.LazyFrame:
    """Scans every attempt below `results`, failures included, as `columns.READ_SCHEMA`.

    A column that an older file lacks is null. `sweep` limits the scan to one sweep. Rows excluded
    by hand are included, with the reason in `excluded`: `last_attempts` and `scope.select_attempts`
        drop them.

    Raises:
        NoDataError: no measurement exists, or no such sweep; measure or import first.
        AnalysisError: a newer fleetrank wrote the folder, or its exclusions are damaged.
    """
    frame = pl.scan_parquet(
        stored_parts(results, sweep=sweep),
        schema=SCHEMA,
        hive_partitioning=True,
        hive_schema={"sweep_id": pl.String()},
        missing_columns="insert",
        extra_columns="ignore",
    )
    marked = frame.with_columns(excluded_column(read_exclusions(results)))
    return marked.filter(pl.col("origin").is_in(list(origins)))


def stored_parts(results: Path, *, sweep: str | None = None) -> list[Path]:
    """The Parquet files that hold each row once, of all sweeps or of one.

    Raises:
        NoDataError: no measurement exists, or no such sweep; measure or import first.
        AnalysisError: a newer fleetrank wrote the folder; upgrade.
    """
    _refuse_newer_schema(results)
    measurements = results / "measurements"
    # The id is compared as text: it is not a pattern or a path.
    chosen = (f for f in _sweep_folders(measurements) if sweep is None or _sweep_of(f) == sweep)
    if files := [path for folder in chosen for path in part_files(folder)]:
        return files
    raise _no_data(measurements, sweep)


def last_attempts(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Keeps the last ok attempt of each (sweep, cell, repeat), of every sweep; none excluded."""
    ok = not_excluded(frame).filter(pl.col("status") == "ok")
    repeat = ("sweep_id", "cell_key", "repeat")
    return ok.filter(pl.col("attempt") == pl.col("attempt").max().over(repeat))


def valid_attempts(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Keeps the last ok attempt of each (sweep, cell, repeat), from the newest sweep only.

    Newest is decided for each model on each platform, by `newest_sweep`; a sweep in
    which every attempt failed or was excluded by hand does not replace an older sweep. Applying it
    twice changes nothing.
    """
    last = last_attempts(frame)
    newest = (
        last.group_by("platform_key", "model", "sweep_id")
        .agg(pl.col("started_utc").min())
        .group_by("platform_key", "model")
        .agg(newest_sweep())
    )
    return last.join(newest, on=["platform_key", "model", "sweep_id"], how="semi")


def newest_sweep() -> pl.Expr:
    """The newest of some rows' `sweep_id`; published releases are ordered by their version.

    An importer may read an older release after a newer one, so the time of the import decides
    only between sweeps of the same version.
    """
    order = [release_order(), pl.col("started_utc"), pl.col("sweep_id")]
    return pl.col("sweep_id").sort_by(order, nulls_last=False).last()


def release_order() -> pl.Expr:
    """The version of an imported sweep as a text that sorts as its numbers; null for other sweeps.

    `import-SOURCE-VERSION-STAMP-SUFFIX` is the form of the id. Numbers of up to 6 digits compare.
    """
    version = pl.col("sweep_id").str.extract(r"^import-.+?-((?:[a-z]*\d[0-9a-z.]*))-\d{8}T")
    numbers = version.str.extract_all(r"\d+")
    return numbers.list.eval(pl.element().str.zfill(6)).list.join(".")


def schema_version(results: Path) -> int | None:
    """The version of the table that a results folder holds; `None` without its `schema.json`.

    Raises:
        BadFileError: `schema.json` is damaged, or holds no version.
    """
    path = results / "schema.json"
    if not path.exists():
        return None
    remedy = f'restore it, or write {{"schema_version": {SCHEMA_VERSION}}} into it'
    try:
        version = read_checked_object(path).get("schema_version")
    except BadFileError as error:
        raise BadFileError(error.message, remedy) from error
    if isinstance(version, int):
        return version
    raise BadFileError(f"{path} holds no schema_version", remedy)


def _refuse_newer_schema(results: Path) -> None:
    try:
        version = schema_version(results)
    except BadFileError as error:
        raise AnalysisError(error.message, error.remedy) from error
    if version is not None and version > SCHEMA_VERSION:
        raise AnalysisError(
            f"{results} has schema version {version}; this fleetrank reads {SCHEMA_VERSION}",
            "upgrade fleetrank, or point --workspace at another folder",
        )


def _no_data(measurements: Path, sweep: str | None) -> NoDataError:
    known = [_sweep_of(folder) for folder in _sweep_folders(measurements)]
    if sweep is None or not known:
        return NoDataError(f"no measurements in {measurements}", "run `fleetrank sweep run`")
    return NoDataError(f"no sweep '{sweep}' has measurements", f"known are {', '.join(known)}")


def _sweep_folders(measurements: Path) -> list[Path]:
    """The files without those of sweeps that are being removed or copied."""
    folders = sorted(measurements.glob("sweep_id=*"))
    return [f for f in folders if not is_pending(measurements.parent, _sweep_of(f))]


def _sweep_of(folder: Path) -> str:
    return folder.name.partition("=")[2]
