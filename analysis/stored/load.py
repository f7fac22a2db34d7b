"""Reads stored measurements lazily: samples stay on disk until a caller uses them."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import polars as pl

from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.stored.chosen_workload import WORKLOAD, known_workload
from fleetrank.analysis.stored.columns import (
    DEFAULT_ORIGINS,
    LARGEST,
    LARGEST_INTEGER,
    SCHEMA,
    SCHEMA_VERSION,
    SMALLEST,
)
from fleetrank.analysis.stored.exclusions import excluded_column, not_excluded, read_exclusions
from fleetrank.analysis.stored.latency_statistic import with_statistic
from fleetrank.analysis.stored.part_list import (
    MEASUREMENTS,
    NO_SWEEP,
    part_files,
    published_sweeps,
    read_list,
)
from fleetrank.analysis.stored.selection import Named, names_of
from fleetrank.foundation.checksums import read_checked_object
from fleetrank.foundation.errors import BadFileError, reworded
from fleetrank.foundation.wording import did_you_mean


def load_measurements(
    results: Path, *, sweep: Named = None, origins: Sequence[str] | None = DEFAULT_ORIGINS
) -> pl.LazyFrame:
    """Scans every attempt below `results`, failures included, as `columns.READ_SCHEMA`.

    A column that a file lacks is null, and so is a figure beyond `SMALLEST`, `LARGEST` and
    `LARGEST_INTEGER`: whatever a file holds, every table can be computed. `statistic` is filled in
    where `latency_statistic` is certain, and a row without a workload has `image`. `sweep` limits
    the scan to one sweep, or to several; without `origins` rows of any origin are kept, also of an
    unknown one. Rows excluded by hand are included, with the reason in `excluded`: `last_attempts`
    and `scope.select_attempts` drop them.

    Raises:
        NoDataError: nothing is stored, or a named sweep has no row; measure or import first.
        AnalysisError: a newer fleetrank wrote the folder, or its exclusions are damaged.
    """
    frame = _scan(stored_parts(results, sweep=sweep)).with_columns(_possible_figures())
    known = with_statistic(frame).with_columns(known_workload())
    marked = known.with_columns(excluded_column(read_exclusions(results)))
    return marked if origins is None else marked.filter(pl.col("origin").is_in(list(origins)))


def _scan(parts: list[Path]) -> pl.LazyFrame:
    if not parts:
        return pl.LazyFrame(schema=SCHEMA)
    return pl.scan_parquet(
        parts,
        glob=False,  # a folder of the user may be named `lab[1]`
        schema=SCHEMA,
        hive_partitioning=True,
        hive_schema={"sweep_id": pl.String()},
        missing_columns="insert",
        extra_columns="ignore",
    )


@cache
def _possible_figures() -> list[pl.Expr]:
    """Every column of figures, with null in place of one that no table can compute with."""
    floats, integers, lists = (
        pl.col([name for name, dtype in SCHEMA.items() if dtype == kind and name != "seed"])
        for kind in (pl.Float64(), pl.Int64(), pl.List(pl.Int64))
    )
    # An empty list has no smallest and no largest figure, and stays.
    is_list = (lists.list.min() >= -LARGEST_INTEGER) & (lists.list.max() <= LARGEST_INTEGER)
    return [
        pl.when((floats == 0) | floats.abs().is_between(SMALLEST, LARGEST)).then(floats),
        pl.when(integers.is_between(-LARGEST_INTEGER, LARGEST_INTEGER)).then(integers),
        pl.when(is_list.fill_null(value=True)).then(lists),
    ]


def pinned_to() -> pl.Expr:
    """The part of a platform's name that its CPUs have: `first_cores`, numbers, or null."""
    return (
        pl.when(pl.col("cpu_choice") == "first_cores")
        .then(pl.col("cpu_choice"))
        .otherwise(pl.col("affinity"))
        .alias("affinity")
    )


def stored_parts(results: Path, *, sweep: Named = None) -> list[Path]:
    """The Parquet files that hold each row once, of all sweeps or of the named ones.

    Empty if the folder has rows of side tables only.

    Raises:
        NoDataError: nothing is stored, or a named sweep has no row; measure or import first.
        AnalysisError: a newer fleetrank wrote the folder; upgrade.
        DamagedPartError: a part was deleted, or is damaged.
    """
    _refuse_newer_schema(results)
    wanted = names_of(sweep)
    # The id is compared as text: it is not a pattern or a path.
    chosen = [one for one in published_sweeps(results) if not wanted or one in wanted]
    files = {sweep_id: part_files(results, sweep_id) for sweep_id in chosen}
    lacking = [name for name in wanted if not files.get(name)]
    if lacking or not any(read_list(results, sweep_id).stretches for sweep_id in chosen):
        raise _no_data(results, *lacking[:1])
    return [path for paths in files.values() for path in paths]


def last_attempts(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Keeps the last ok attempt of each (sweep, cell, repeat), of every sweep; none excluded."""
    ok = not_excluded(frame).filter(pl.col("status") == "ok")
    repeat = ("sweep_id", "cell_key", "repeat")
    return ok.filter(pl.col("attempt") == pl.col("attempt").max().over(repeat))


IS_SUSTAINED = pl.col("stop_reason") == "min_time"
"""Rows of runs for a given time: a sweep with `measure: {min_time_s: 60}`."""


def valid_attempts(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Keeps the last ok attempt of each (sweep, cell, repeat), from the newest sweep only.

    Newest is decided for each model, workload and platform, by `newest_sweep`; a sweep in
    which every attempt failed or was excluded by hand does not replace an older sweep. Nor does one
    of sustained runs replace an ordinary one: few processes, and a device that may be warm.
    Applying it twice changes nothing.
    """
    last = last_attempts(frame)
    place = ("platform_key", "model", WORKLOAD)
    is_sustained = IS_SUSTAINED.fill_null(value=False)
    newest = (
        last.group_by(*place, "sweep_id")
        .agg(pl.col("started_utc").min(), is_sustained.all().alias("is_sustained"))
        .filter(~pl.col("is_sustained") | pl.col("is_sustained").all().over(place))
        .group_by(place)
        .agg(newest_sweep())
    )
    # A frame that did not come from `load_measurements` may have rows without a workload.
    return last.join(newest, on=[*place, "sweep_id"], how="semi", nulls_equal=True)


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
    with reworded(AnalysisError, BadFileError):
        version = schema_version(results)
    if version is not None and version > SCHEMA_VERSION:
        raise AnalysisError(
            f"{results} has schema version {version}; this fleetrank reads {SCHEMA_VERSION}",
            "upgrade fleetrank, or use another results folder",
        )


def _no_data(results: Path, sweep: str | None = None) -> NoDataError:
    known = [one for one in published_sweeps(results) if one != NO_SWEEP]
    if sweep is None or not known:
        return NoDataError(
            f"no measurements in {results / MEASUREMENTS}",
            "measure with `fleetrank sweep run SPEC`, or import published figures: "
            "`fleetrank results import` with `from=demo`",
        )
    return NoDataError(
        f"no sweep '{sweep}' has measurements",
        f"{did_you_mean(sweep, known)}known are {', '.join(known)}",
    )
