"""Text of a published table with two readings is refused, and what is clear is read."""

import json

import pytest

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.importers.csv_map import parse_csv, parse_records
from fleetrank.analysis.importers.release import Release, read_number

MAPPING = """
[source]
name = "lab"
licence = "own"
sample_kind = "tool_summary"
{source}
[columns]
model = "net"
device = "phone"
latency = "ms"
{columns}
[units]
latency = "{unit}"
[constants]
tier = "edge"
runtime = "tflite"
precision = "fp32"
{constants}
statistic = "mean"
{more}
"""


def mapping(
    source: str = "",
    columns: str = "",
    *,
    unit: str = "ms",
    constants: str = "batch = 1",
    more: str = "",
) -> bytes:
    parts = {"source": source, "columns": columns, "unit": unit, "constants": constants}
    return MAPPING.format(**parts, more=more).encode()


def imported(table: str, given: bytes) -> Release:
    (release,) = parse_csv("t.csv", table.encode(), given)
    return release


def ms(release: Release) -> list[object]:
    return [
        row["latency_p50_ns"] and float(str(row["latency_p50_ns"])) / 1e6 for row in release.rows
    ]


@pytest.mark.parametrize("text", ["17,912", "41,2", "1.234,5", "-1,500", "0,5"])
def test_a_comma_that_can_be_the_decimal_sign_is_refused(text: str) -> None:
    with pytest.raises(AnalysisError, match=r"line 2: ms is") as raised:
        imported(f"net;phone;ms\na;p;{text}\n", mapping('delimiter = ";"'))
    assert "decimal" in raised.value.remedy


@pytest.mark.parametrize(
    ("text", "decimal", "value"),
    [
        ("17,912", ",", 17.912),
        ("17,912", ".", 17912.0),
        ("1.234,5", ",", 1234.5),
        ("1.234", ",", 1234.0),
        ("41,2", ",", 41.2),
        ("1,250.5", None, 1250.5),
        ("1,234,567", None, 1234567.0),
        ("17.912", None, 17.912),
    ],
)
def test_a_stated_or_clear_sign_is_read(text: str, decimal: str | None, value: float) -> None:
    stated = "" if decimal is None else f'decimal = "{decimal}"'
    found = imported(f"net;phone;ms\na;p;{text}\n", mapping(f'delimiter = ";"\n{stated}'))
    assert ms(found) == [pytest.approx(value)]


def test_a_decimal_point_under_a_decimal_comma_is_refused() -> None:
    with pytest.raises(AnalysisError, match=r"17\.9"):
        imported("net;phone;ms\na;p;17.9\n", mapping('delimiter = ";"\ndecimal = ","'))


@pytest.mark.parametrize("text", ["1_0", "\u0661\u0662", "infinity", "0x10", "1e"])
def test_what_only_a_program_takes_for_a_number_is_none(text: str) -> None:
    assert read_number(text) is None


def test_a_mapped_column_that_is_there_twice_is_refused_and_another_is_not() -> None:
    with pytest.raises(AnalysisError, match="several columns named 'ms'"):
        imported("net,phone,ms,ms\na,p,1,2\n", mapping())
    assert ms(imported("net,phone,ms,x,x\na,p,1,2,3\n", mapping())) == [1.0]


LONG = [
    {"net": "a", "phone": "p", "metric": "latency", "ms": 21.5},
    {"net": "a", "phone": "p", "metric": "load", "ms": 247.0},
]


def records(lines: list[dict[str, object]], given: bytes) -> Release:
    return parse_records({"r.json": json.dumps(lines).encode()}, given)


def test_lines_that_differ_in_what_they_measure_are_no_repeats() -> None:
    with pytest.raises(AnalysisError, match=r"'metric' .*'latency', 'load'") as raised:
        records(LONG, mapping())
    assert "[where]" in raised.value.remedy
    assert ms(records(LONG, mapping(more='[where]\nmetric = "latency"'))) == [21.5]
    assert len(records(LONG, mapping('ignored = ["metric"]')).rows) == 2


def test_where_that_chooses_no_line_is_refused() -> None:
    with pytest.raises(AnalysisError, match="no line"):
        records(LONG, mapping(more='[where]\nmetric = "latencies"'))


def test_a_setting_in_numbers_is_noticed_because_it_returns_in_other_cells() -> None:
    table = "net,phone,size,ms\n" + "".join(
        f"{net},p,{size},{size / 10}\n" for net in "ab" for size in (224, 512)
    )
    with pytest.raises(AnalysisError, match="'size'"):
        imported(table, mapping())


def test_repeats_that_a_word_describes_are_pooled_with_a_note() -> None:
    lines = [line | {"metric": word, "ms": 20.0 + n} for n, (line, word) in
             enumerate(zip(LONG, ("cold", "warm"), strict=True))]  # fmt: skip
    found = records(lines, mapping())
    assert len(found.rows) == 2
    assert any("'metric' ('cold', 'warm')" in note for note in found.notes)


def test_numbers_of_repeats_moments_and_other_figures_are_no_settings() -> None:
    table = "net,phone,run,when,p99,ms\n" + "".join(
        f"{net},p,{run},2026-01-0{run} 10:00,{run + ord(net) / 7},{run}\n"
        for net in "ab"
        for run in (1, 2, 3)
    )
    found = imported(table, mapping())
    assert len(found.rows) == 6
    assert found.notes == ()


def test_a_rate_is_the_time_of_a_whole_batch() -> None:
    given = {"unit": "samples_per_second", "constants": ""}
    found = imported("net,phone,ms,b\na,p,100,8\nb,p,50,1\n", mapping("", 'batch = "b"', **given))
    assert ms(found) == [80.0, 20.0]


def test_lists_in_objects_single_objects_and_folders_are_records() -> None:
    inner = {"device": {"phone": "p"}, "results": {"load": 2, "runs": [{"ms": 1}, {"ms": 2}]}}
    given = mapping('records = "results.runs"').replace(b'"phone"', b'"device.phone"')
    content = json.dumps({"net": "a"} | inner).encode()
    assert ms(parse_records({"a.json": content, "b.json": content}, given)) == [1.0, 2.0] * 2
    one = json.dumps({"net": "a", "phone": "p", "ms": 3}).encode()
    assert ms(parse_records({"one.json": one}, mapping())) == [3.0]


@pytest.mark.parametrize(
    ("unit", "n_bytes"),
    [("B", 3), ("kB", 3e3), ("KiB", 3072), ("MB", 3e6), ("MiB", 3145728), ("GB", 3e9),
     ("GiB", 3221225472)],
)  # fmt: skip
def test_a_unit_of_memory_is_what_its_name_says(unit: str, n_bytes: float) -> None:
    given = mapping(
        columns='memory = "rss"', constants='batch = 1\nmemory_metric = "maxrss_growth"'
    )
    given = given.replace(b"[units]", f'[units]\nmemory = "{unit}"'.encode())
    (row,) = imported("net,phone,ms,rss\na,p,1,3\n", given).rows
    assert row["peak_memory_bytes"] == n_bytes
