"""SQL over the results: what it answers, and everything it must not be able to do."""

import json
from collections.abc import Mapping
from pathlib import Path

import duckdb
import polars as pl
import pytest
from fleet_rows import NETS, PLACES, SWEEP, Place, write_results

from fleetrank.analysis import sql as sql_module
from fleetrank.analysis.errors import NoDataError, QueryError
from fleetrank.analysis.sql import left_out_note, query_frames, run_query
from fleetrank.analysis.sql_values import rows_of
from fleetrank.analysis.sql_views import described_views, register_views
from fleetrank.analysis.stored.columns import ORIGINS, READ_COLUMNS, ROW_KEY
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.scope import select_attempts
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.stored.side_tables import SIDE_TABLES
from fleetrank.foundation.wording import with_flags

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_results(tmp_path_factory.mktemp("query") / "results", n_samples=5)


def test_every_documented_column_of_every_view_can_be_selected(results: Path) -> None:
    described = described_views()
    views = {"measurements", "all_measurements", "devices", "models", "sweeps", *SIDE_TABLES}
    assert {row.view for row in described} == views
    types = run_query(
        results,
        " UNION ALL ".join(
            f"SELECT '{view}' AS view, column_name, column_type FROM (DESCRIBE {view})"
            for view in sorted(views)
        ),
    )
    for view in views:
        columns = [row for row in described if row.view == view]
        frame = run_query(results, f"SELECT * FROM {view}")
        assert frame.columns == [row.column for row in columns]
        wanted = {row.column: row.dtype for row in columns}
        got = dict(types.filter(view=view).drop("view").iter_rows())
        assert {name: _short(dtype) for name, dtype in got.items()} == wanted


def _short(dtype: str) -> str:
    return dtype.replace("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ")


def test_measurements_hold_every_attempt_with_the_table_s_columns(results: Path) -> None:
    frame = run_query(results, "SELECT * FROM measurements")
    assert frame.columns == [column.name for column in READ_COLUMNS]
    n_ok = run_query(results, "SELECT count(*) AS n FROM measurements WHERE status = 'ok'")
    assert n_ok.item() == len(NETS) * len(PLACES) * 5
    assert frame.height > n_ok.item()


def test_excluded_rows_are_there_and_say_why(tmp_path: Path) -> None:
    folder = write_results(tmp_path / "results", repeats=1, n_samples=2)
    n_rows = run_query(folder, "SELECT count(*) FROM measurements").item()
    _write_exclusions(folder, SWEEP, {"res*": 'it\'s "odd"; --'})
    sql = "SELECT model, excluded, count(*) AS n FROM all_measurements GROUP BY ALL"
    found = run_query(folder, sql)
    assert found["n"].sum() == n_rows
    excluded = {model: why for model, why, _ in found.iter_rows() if why is not None}
    assert excluded == dict.fromkeys(("resnet18", "resnet50"), 'it\'s "odd"; --')
    described = [row for row in described_views() if row.column == "excluded"]
    assert [(row.view, row.dtype) for row in described] == [
        ("measurements", "VARCHAR"), ("all_measurements", "VARCHAR"),
    ]  # fmt: skip
    frame = run_query(folder, "SELECT * FROM measurements")
    assert frame.columns == [column.name for column in READ_COLUMNS]
    assert not {"resnet18", "resnet50"} & set(frame["model"])
    assert frame.height == n_rows - sum(n for _, why, n in found.iter_rows() if why is not None)


def test_measurements_are_the_attempts_that_tables_use(tmp_path: Path) -> None:
    """The condition of the view is written in SQL, the selection of tables in Polars."""
    others = [Place(device=origin, tier="edge", runtime="onnx", gflops=9, origin=origin)
              for origin in ("simulated", "virtual", "imported")]  # fmt: skip
    folder = write_results(tmp_path / "r", places=[*PLACES, *others], repeats=1, n_samples=2)
    _write_exclusions(folder, SWEEP, {"res*": "odd"})
    stored = load_measurements(folder, origins=ORIGINS)
    of_tables = select_attempts(stored, Selection()).select(ROW_KEY).collect()
    keys = ", ".join(ROW_KEY)
    found = run_query(folder, f"SELECT {keys} FROM measurements")
    assert sorted(found.rows()) == sorted(of_tables.rows())
    every = run_query(folder, f"SELECT {keys} FROM all_measurements")
    assert every.height == stored.select(pl.len()).collect().item() > found.height


def test_rows_left_out_are_counted_by_reason(tmp_path: Path) -> None:
    simulated = Place(device="sim", tier="edge", runtime="onnx", gflops=9, origin="simulated")
    folder = write_results(tmp_path / "r", places=[PLACES[0], simulated], repeats=1, n_samples=2)
    n_nets = len(NETS)
    counted = f"({n_nets} simulated)"
    for sql in ("FROM Measurements", "SELECT (SELECT count(*) FROM measurements)"):
        note = left_out_note(folder, sql)
        assert note is not None
        assert counted in note
        assert "all_measurements" in note
    for sql in ("FROM all_measurements", "FROM devices", "SELECT 'measurements'"):
        assert left_out_note(folder, sql) is None
    _write_exclusions(folder, SWEEP, {"resnet18": "x"})
    # The excluded row of the simulated device counts once.
    assert f"(2 excluded, {n_nets - 1} simulated)" in str(
        left_out_note(folder, "FROM measurements")
    )


def test_no_note_where_measurements_has_every_row(results: Path) -> None:
    assert left_out_note(results, "FROM measurements") is None


def _write_exclusions(folder: Path, sweep: str, reasons: Mapping[str | None, str]) -> None:
    stamp = "2026-11-21T12:00:00+00:00"
    entries = [
        {"number": n, "sweep_id": sweep, "pattern": pattern, "reason": reason.strip(),
         "excluded_utc": stamp}
        for n, (pattern, reason) in enumerate(reasons.items(), start=1)
    ]  # fmt: skip
    content = {"next_number": len(entries) + 1, "exclusions": entries}
    (folder / "exclusions.json").write_text(json.dumps(content))


@pytest.mark.thorough
def test_every_pattern_that_may_stand_there_is_understood(tmp_path: Path) -> None:
    folder = write_results(tmp_path / "results", repeats=1, n_samples=2)
    _write_exclusions(folder, SWEEP, {"*" * 250 + "(" * n: "x" for n in range(150, 250)})
    assert run_query(folder, "SELECT count(excluded) FROM all_measurements").item() == 0


def test_excluded_rows_are_found_while_reading_and_no_row_is_held(tmp_path: Path) -> None:
    folder = write_results(tmp_path / "results", repeats=1, n_samples=2)
    _write_exclusions(folder, SWEEP, {"res*": "x"})
    with duckdb.connect() as connection:
        register_views(connection, folder)
        plan = connection.sql("EXPLAIN SELECT model FROM measurements WHERE excluded IS NULL")
        text = str(plan.fetchall())
    assert "ARROW_SCAN" in text
    assert "JOIN" not in text.upper()
    assert "samples_ns" not in text


def test_a_damaged_record_costs_only_what_it_said(tmp_path: Path) -> None:
    folder = write_results(tmp_path / "results", repeats=1, n_samples=2)
    (folder / "sweeps" / f"{SWEEP}.json").write_text("{half")
    assert run_query(folder, "FROM sweeps").row(0, named=True)["state"] is None


NO_SELECTS = (
    ("", "0 statements"),
    ("SELECT 1; SELECT 2", "2 statements"),
    ("SELECT 1; COPY measurements TO '/tmp/x.csv'", "2 statements"),
    ("COPY (SELECT 1) TO '/tmp/fleetrank-query.csv'", "COPY"),
    ("ATTACH '/tmp/x.db'", "ATTACH"),
    ("PRAGMA database_list", "PRAGMA"),
    ("INSTALL httpfs", "LOAD"),
    ("LOAD httpfs", "LOAD"),
    ("UPDATE EXTENSIONS", "not a SELECT"),
    ("SET memory_limit = '100GB'", "SET"),
    ("RESET enable_external_access", "SET"),
    ("CREATE TABLE t AS SELECT 1", "CREATE"),
    ("INSERT INTO devices VALUES (1)", "INSERT"),
    ("DELETE FROM measurements", "DELETE"),
    ("DROP VIEW devices", "DROP"),
    ("EXPORT DATABASE '/tmp/x'", "EXPORT"),
    ("CALL pragma_version()", "CALL"),
    ("EXPLAIN ANALYZE SELECT 1", "EXPLAIN"),
    ("PREPARE p AS SELECT 1", "PREPARE"),
    ("SELECT $1", "parameters"),
)


def test_anything_but_one_select_is_refused_by_its_type(results: Path) -> None:
    for sql, message in NO_SELECTS:
        with pytest.raises(QueryError) as raised:
            run_query(results, sql)
        assert message in str(raised.value), sql
        assert raised.value.remedy, sql


OUTSIDE = (
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_csv_auto('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_blob('/etc/passwd')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM read_parquet('/tmp/x.parquet')",
    "SELECT * FROM parquet_metadata('/tmp/x.parquet')",
    "SELECT * FROM read_json('/etc/passwd')",
    "SELECT * FROM query('SELECT * FROM read_text(''/etc/passwd'')')",
    "SELECT * FROM duckdb_secrets()",
    "SELECT getenv('HOME')",
    "SELECT * FROM 'https://example.org/x.csv'",
    "WITH a AS (SELECT * FROM read_text('/etc/passwd')) SELECT * FROM a",
)


def test_nothing_outside_the_results_can_be_read(results: Path) -> None:
    for sql in OUTSIDE:
        with pytest.raises(QueryError) as raised:
            run_query(results, sql)
        assert raised.value.remedy, sql
        assert "root:" not in raised.value.message, sql


def test_a_select_cannot_change_the_configuration(results: Path) -> None:
    frame = run_query(
        results,
        "SELECT current_setting('enable_external_access') AS access, "
        "current_setting('lock_configuration') AS is_locked",
    )
    assert frame.row(0) == (False, True)


def test_variables_of_the_program_are_not_tables(results: Path) -> None:
    with pytest.raises(QueryError, match="statement"):
        run_query(results, "SELECT * FROM statement")


def test_wrong_sql_names_the_nearest_column(results: Path) -> None:
    with pytest.raises(QueryError, match='"model"') as raised:
        run_query(results, "SELECT modl FROM measurements")
    assert "--tables" in with_flags(raised.value.remedy)
    with pytest.raises(QueryError, match="syntax error"):
        run_query(results, "SELECT FROM WHERE")


def test_rows_stop_at_the_limit_before_they_are_made(results: Path) -> None:
    frame = run_query(results, "SELECT * FROM range(1000000000000)", max_rows=7)
    assert frame["range"].to_list() == list(range(7))


def test_order_survives_the_limit(results: Path) -> None:
    frame = run_query(results, "SELECT i FROM range(1000) t(i) ORDER BY i DESC", max_rows=3)
    assert frame["i"].to_list() == [999, 998, 997]


def test_a_query_that_takes_too_long_is_interrupted(results: Path) -> None:
    sql = "SELECT count(*) FROM range(1000000000000) WHERE hash(range) = 3"
    with pytest.raises(QueryError, match=r"longer than 0\.3 s"):
        run_query(results, sql, timeout_s=0.3)


def test_a_query_that_needs_too_much_memory_is_refused(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sql_module._SETTINGS, "memory_limit", "64MB")
    sql = "SELECT list(i) FROM range(3000000000) t(i)"
    with pytest.raises(QueryError, match="memory"):
        run_query(results, sql, timeout_s=60)


def test_an_empty_folder_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NoDataError, match="no measurement") as raised:
        run_query(tmp_path, "SELECT 1")
    assert "sweep run" in raised.value.remedy


WITHOUT_FORM = (
    "DATE '5877642-06-25'",
    "'infinity'::DATE",
    "DATE '0001-01-01 (BC)'",
    "'infinity'::TIMESTAMP",
    "'-infinity'::TIMESTAMPTZ",
    "TIMESTAMP '294246-12-31'",
    "TIMESTAMP '0044-03-15 (BC) 10:00:00'",
    "TIMESTAMPTZ '290000-01-01'",
    "TIMESTAMP_S '290000-01-01'",
    "[DATE '5877642-06-25']",
    "{'a': DATE '5877642-06-25', 'b': [1]}",
    "MAP {1: 'infinity'::DATE}",
    "TIME '24:00:00'",
    "[TIME '24:00:00']",
    "170141183460469231731687303715884105727::HUGEINT",
    "340282366920938463463374607431768211455::UHUGEINT",
    "[1::UHUGEINT]",
    "TIMETZ '23:59:59+15:59'",
    "'10101'::BIT",
    "{'a': ['10101'::BIT]}",
    "MAP {'k': '1'::BIT}",
    "12345678901234567890::BIGNUM",
    "union_value(k := 1)",
    "1::VARIANT",
    "INTERVAL 3 DAY",
    "[INTERVAL 3 DAY]",
)
"""Values of SQL that Arrow, Polars or Python know otherwise, or not at all."""


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(WITHOUT_FORM[::4], id="some"),
        pytest.param(WITHOUT_FORM, id="every", marks=pytest.mark.thorough),
    ],
)
def test_a_value_without_a_form_is_refused_with_a_remedy_and_not_shown_wrong(
    results: Path, values: tuple[str, ...]
) -> None:
    for value in values:
        with pytest.raises(QueryError) as raised:
            list(rows_of(run_query(results, f"SELECT {value} AS x")))
        said = raised.value.message
        assert "SQL only" in said or "no form outside of SQL" in said, value
        assert "VARCHAR" in raised.value.remedy, value
    columns = ", ".join(f"({value})::VARCHAR AS x{n}" for n, value in enumerate(WITHOUT_FORM))
    as_text = run_query(results, f"SELECT {columns}").row(0)
    assert all(isinstance(text, str) for text in as_text), "as the remedy says"


KEPT = (
    ("DATE '9999-12-31'::VARCHAR", "9999-12-31"),
    ("'abc'::BLOB", b"abc"),
    ("[[['\\xFF'::BLOB]], NULL]", [[[b"\xff"]], None]),
    ("MAP {'a': [1, NULL]}", {"a": [1, None]}),
    ("{'a': {'b': 'x'::ENUM('x', 'y')}}", {"a": {"b": "x"}}),
    ("NULL", None),
    ("[]", []),
    ("(SELECT sum(9223372036854775807) FROM range(3))", 27670116110564327421),
    ("ARRAY[1, 2]::INTEGER[2]", [1, 2]),
)


def test_every_other_value_arrives_as_it_is(results: Path) -> None:
    columns = ", ".join(f"{value} AS x{n}" for n, (value, _) in enumerate(KEPT))
    [row] = rows_of(run_query(results, f"SELECT {columns}"))
    assert list(row.values()) == [expected for _, expected in KEPT]


def test_columns_of_one_name_stay_apart(results: Path) -> None:
    [row] = rows_of(run_query(results, "SELECT 1 AS a, 2 AS a, 3 AS A"))
    assert list(row.values()) == [1, 2, 3]


def test_no_row_is_a_table_with_its_columns(results: Path) -> None:
    frame = run_query(results, "SELECT model, 1 AS n FROM models WHERE false")
    assert (frame.height, frame.columns) == (0, ["model", "n"])


def test_no_column_is_an_error_of_the_statement(results: Path) -> None:
    with pytest.raises(QueryError):
        run_query(results, "SELECT * EXCLUDE (a) FROM (SELECT 1 AS a)")


def test_text_in_no_encoding_is_refused(results: Path) -> None:
    for sql in ("SELECT '\udcff'", 'SELECT 1 AS "a\0b"', "\ud800"):
        with pytest.raises(QueryError, match="not valid text"):
            run_query(results, sql)


def test_rows_come_while_the_query_goes_on(results: Path) -> None:
    frames = query_frames(results, "FROM range(10000000000)", timeout_s=30, max_rows=10**10)
    assert next(frames)["range"][0] == 0
    frames.close()


def test_an_error_in_the_middle_is_the_querys(results: Path) -> None:
    sql = "SELECT CASE WHEN i = 100000 THEN error('at last') ELSE 1 END FROM range(300000) t(i)"
    frames = query_frames(results, sql, timeout_s=30, max_rows=10**6)
    with pytest.raises(QueryError, match="at last"):
        list(frames)
