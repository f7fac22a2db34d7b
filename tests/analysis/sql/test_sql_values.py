"""Values of SQL that Arrow, Polars or Python know otherwise, or not at all."""

from pathlib import Path

import pytest
from fleet_rows import write_results

from fleetrank.analysis.errors import QueryError
from fleetrank.analysis.sql.query import query_frames, run_query
from fleetrank.analysis.sql.sql_values import rows_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("values") / "results"
    return write_results(folder, repeats=1, n_samples=2)


@pytest.mark.parametrize(
    "value",
    [
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
    ],
)
def test_a_value_without_a_form_is_refused_with_a_remedy_and_not_shown_wrong(
    results: Path, value: str
) -> None:
    with pytest.raises(QueryError, match=r"SQL only|no form outside of SQL") as raised:
        list(rows_of(run_query(results, f"SELECT {value} AS x")))
    assert "VARCHAR" in raised.value.remedy
    as_text = run_query(results, f"SELECT ({value})::VARCHAR AS x")
    assert isinstance(as_text["x"][0], str)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("DATE '9999-12-31'::VARCHAR", "9999-12-31"),
        ("'abc'::BLOB", b"abc"),
        ("[[['\\xFF'::BLOB]], NULL]", [[[b"\xff"]], None]),
        ("MAP {'a': [1, NULL]}", {"a": [1, None]}),
        ("{'a': {'b': 'x'::ENUM('x', 'y')}}", {"a": {"b": "x"}}),
        ("NULL", None),
        ("[]", []),
        ("sum(9223372036854775807) FROM range(3)", 27670116110564327421),
        ("ARRAY[1, 2]::INTEGER[2]", [1, 2]),
    ],
)
def test_every_other_value_arrives_as_it_is(results: Path, value: str, expected: object) -> None:
    [row] = rows_of(run_query(results, f"SELECT {value}"))
    assert list(row.values()) == [expected]


def test_columns_of_one_name_stay_apart(results: Path) -> None:
    [row] = rows_of(run_query(results, "SELECT 1 AS a, 2 AS a, 3 AS A"))
    assert list(row.values()) == [1, 2, 3]


def test_no_row_is_a_table_with_its_columns(results: Path) -> None:
    frame = run_query(results, "SELECT model, 1 AS n FROM models WHERE false")
    assert (frame.height, frame.columns) == (0, ["model", "n"])


def test_no_column_is_an_error_of_the_statement(results: Path) -> None:
    with pytest.raises(QueryError):
        run_query(results, "SELECT * EXCLUDE (a) FROM (SELECT 1 AS a)")


@pytest.mark.parametrize("sql", ["SELECT '\udcff'", 'SELECT 1 AS "a\0b"', "\ud800"])
def test_text_in_no_encoding_is_refused(results: Path, sql: str) -> None:
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
