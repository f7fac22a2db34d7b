"""Platforms of rows from before first cores had a name."""

import duckdb
import polars as pl
import pytest

from fleetrank.analysis.sql.sql_views import register_every_row
from fleetrank.analysis.stored.cells_table import cell_values
from fleetrank.analysis.stored.exclusions import Exclusion, covers
from fleetrank.analysis.stored.load import with_platform_names
from fleetrank.device_agents.contract.task import Execution
from fleetrank.foundation.vocabulary import CpuChoice, Runtime
from fleetrank.orchestrator.identity.keys import platform_key

_ALL = ",".join(map(str, range(96)))


def _row(
    affinity: str | None, *, threads: int = 2, cores: tuple[int, int] = (4, 4), **more: object
) -> dict[str, object]:
    numbers = "free" if affinity is None else affinity
    return {
        "device": "box", "runtime": "onnx", "backend": "cpu", "mode": "eager",
        "precision": "fp32", "batch": 1, "threads": threads, "affinity": affinity,
        "options": '{"a":1}', "axes": None, "logical_cores": cores[0], "physical_cores": cores[1],
        "platform_key": f'box/onnx/cpu/eager/fp32/b1/t{threads}/a{numbers}/{{"a":1}}',
        "cpu_choice": None, "os": None,
    } | more  # fmt: skip


ROWS = (
    (_row("0", threads=1), "first_cores"),
    (_row("0,1"), "first_cores"),
    (_row(_ALL, threads=96), "first_cores"),
    (_row("0,2", cores=(4, 2)), "first_cores"),
    (_row("0,2"), "0,2"),
    (_row("2,3"), "2,3"),
    (_row("1,0"), "1,0"),
    (_row("0,10"), "0,10"),
    (_row("0,1", os="Android 14"), "0,1"),
    (_row("0,1", os="Linux 6.1"), "first_cores"),
    (_row(None), "free"),
    (_row("0,1", cpu_choice="listed"), "0,1"),
    (_row("4,5", cpu_choice="cluster"), "4,5"),
)


def _frame() -> pl.DataFrame:
    return pl.DataFrame([row for row, _ in ROWS], infer_schema_length=None)


def test_cores_counted_from_0_were_the_first_cores_and_no_other_numbers() -> None:
    found = with_platform_names(_frame().lazy()).collect()
    names = [f'/a{name}/{{"a":1}}' for _, name in ROWS]
    keys = found["platform_key"].to_list()
    assert [key[-len(name) :] for key, name in zip(keys, names, strict=True)] == names
    execution = Execution(
        runtime=Runtime.ONNX, backend="cpu", threads=2, affinity=(2, 3), options=(("a", 1),),
        cpu_choice=CpuChoice.FIRST_CORES,
    )  # fmt: skip
    assert keys[1] == platform_key("box", execution)
    assert found["cpu_choice"].to_list() == [
        name if name == "first_cores" else row["cpu_choice"] for row, name in ROWS
    ]


def test_named_axes_stay_part_of_the_name() -> None:
    row = _row("0,1", axes="seq=8")
    row["platform_key"] = f"{row['platform_key']}/seq=8"
    rows = pl.DataFrame([row], schema_overrides={"cpu_choice": pl.String, "os": pl.String})
    (key,) = with_platform_names(rows.lazy()).collect()["platform_key"]
    assert key.endswith('/t2/afirst_cores/{"a":1}/seq=8')


def test_sql_and_tables_read_the_same_platforms() -> None:
    stored = _frame()
    names = ["platform_key", "cpu_choice"]
    expected = with_platform_names(stored.lazy()).select(names).collect().rows()
    with duckdb.connect() as connection:
        connection.register("stored", stored.to_arrow(compat_level=pl.CompatLevel.oldest()))
        register_every_row(connection, "stored", ())
        found = connection.sql("SELECT platform_key, cpu_choice FROM all_measurements").fetchall()
    assert found == expected


@pytest.mark.parametrize("word", ["*/t2/a0,1/*", 'box/onnx/cpu/eager/fp32/b1/t2/a0,1/{"a":1}'])
def test_an_exclusion_of_an_older_version_still_covers_its_rows(word: str) -> None:
    one = Exclusion(number=1, sweep_id="s", pattern=word, reason="r", excluded_utc="2026-01-01")
    rows = with_platform_names(_frame().lazy()).with_columns(
        sweep_id=pl.lit("s"), model=pl.lit("net"), workload=pl.lit(None, pl.String)
    )
    covered = rows.select(covers(one)).collect().to_series().to_list()
    meant = [number for number, is_covered in enumerate(covered) if is_covered]
    # Its own numbers, with that choice or without one, and what was stored with them.
    assert meant == [1, 3, 8, 9, 11]


def test_cells_hold_the_cores_of_the_platform_not_of_the_mask(make_attempts) -> None:
    key = "box/onnx/cpu/eager/fp32/b1/t2/afirst_cores/{}"
    facts = {"model": "net", "device": "box", "platform_key": key, "cpu_choice": "first_cores"}
    rows = [
        {**facts, "repeat": number, "affinity": cpus, "latency_p50_ns": 1e6}
        for number, cpus in enumerate(("0,1", "2,3"))
    ]
    (cell,) = cell_values(make_attempts(rows)).rows(named=True)
    assert (cell["affinity"], cell["n_repeats"]) == ("first_cores", 2)
