import re

import pytest

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.importers.csv_map import parse_csv, read_mapping
from fleetrank.analysis.importers.release import Release, drop_reason
from fleetrank.foundation.errors import BadFileError

MAPPING = """
[source]
name = "lab"
version = "2026"
licence = "CC-BY-4.0"
sample_kind = "tool_summary"
delimiter = ";"

[columns]
model = "net"
device = "phone"
precision = "arithmetic"
latency = "time"
memory = "rss"
macs = "gmacs"
accuracy = "top1"

[units]
latency = "ms"
memory = "MiB"
macs = "G"
accuracy = "share"

[constants]
tier = "edge"
runtime = "tflite"
batch = 1
memory_metric = "maxrss_growth"

[missing]
latency = [-1, 99999]

[models]
"ResNet-18" = "resnet18"
"""
TABLE = """net;phone;arithmetic;time;rss;gmacs;top1
ResNet-18;Pixel 7;fp32;12.5;30;1.8;0.698
Other;Pixel 7;fp32;"1,250.5";0;0.5;
Other;Pixel 7;fp32;1300;40;0.5;
Failed;Pixel 7;fp32;-1;40;0.5;
Slow;Pixel 7;fp32;99999;40;0.5;
Empty;Pixel 7;fp32;;40;0.5;
Odd;Pixel 7;fp8;5;40;0.5;
;Pixel 7;fp32;5;40;0.5;
"""


def _parse(table: str = TABLE, mapping: str = MAPPING) -> Release:
    (release,) = parse_csv("lab.csv", table.encode(), mapping.encode())
    return release


def test_columns_units_and_constants_become_ours() -> None:
    row = _parse().rows[0]
    assert row["latency_p50_ns"] == 12_500_000
    assert row["peak_memory_bytes"] == 30 * 2**20
    assert row["accuracy_top1"] == pytest.approx(69.8)
    assert (row["tier"], row["runtime"], row["batch"]) == ("edge", "tflite", 1)
    assert row["device"] == "lab-pixel-7"
    assert row["device_model"] == "Pixel 7"
    assert row["sample_kind"] == "tool_summary"
    assert row["accuracy_source"] == "lab, stated by the mapping"
    assert "latency_p50_ns: column time in ms" in row["derived"]


def test_only_a_declared_model_is_ours() -> None:
    rows = _parse().rows
    assert rows[0]["model"] == "resnet18"
    assert rows[0]["macs"] == 1_814_000_000
    assert rows[1]["model"] == "lab:Other"
    assert rows[1]["flops"] == 1_000_000_000
    assert rows[1]["flops_source"] == "lab, stated by the mapping"


def test_commas_group_digits_and_zero_memory_is_unknown() -> None:
    row = _parse().rows[1]
    assert row["latency_p50_ns"] == 1_250_500_000
    assert "peak_memory_bytes" not in row
    assert row["memory_metric"] is None


def test_what_cannot_be_used_is_dropped_with_its_reason() -> None:
    assert [drop_reason(row) for row in _parse().rows] == [
        None, None, None, "sentinel", "sentinel", "no latency", "unknown precision", "no model",
    ]  # fmt: skip


def test_samples_per_second_become_time_per_sample() -> None:
    mapping = MAPPING.replace('latency = "ms"', 'latency = "samples_per_second"')
    assert _parse(mapping=mapping).rows[0]["latency_p50_ns"] == 1e9 / 12.5


def test_a_wrong_mapping_names_the_key_and_the_remedy() -> None:
    for old, new, said in (
        ("[units]", "[unit]", "did you mean 'units'"),
        ('tier = "edge"', 'teir = "edge"', "did you mean 'tier'"),
        ('tier = "edge"', 'tier = "phone"', "use gpu, cpu, edge"),
        ('tier = "edge"', "", "lacks tier"),
        ('latency = "ms"', 'latency = "min"', "not a unit of latency"),
        ('memory_metric = "maxrss_growth"', "", "lacks memory_metric"),
        ('memory_metric = "maxrss_growth"', 'statistic = "best"', "use median, mean, minimum"),
        ("batch = 1", 'batch = "one"', "batch = 'one' is not a whole number"),
        ("batch = 1", "batch = true", "constants.batch"),
        ("[-1, 99999]", '"none"', "'missing.latency'"),
        ('name = "lab"', 'name = "../lab"', "'source.name'"),
        ('name = "lab"', "name = ", "not TOML"),
        ('licence = "CC-BY-4.0"', "", "'source.licence': is required and missing"),
        ('licence = "CC-BY-4.0"', 'licence = ""', "'source.licence'"),
    ):
        with pytest.raises(BadFileError) as caught:
            read_mapping(MAPPING.replace(old, new).encode())
        assert said in str(caught.value), new
        assert "the mapping" in caught.value.message


def test_a_column_that_the_file_lacks_is_named() -> None:
    with pytest.raises(AnalysisError, match="no column rss"):
        _parse(TABLE.replace("rss", "memory"))


@pytest.mark.parametrize(
    ("mapping", "expected"),
    [
        (MAPPING, None),
        (MAPPING.replace("[missing]", 'statistic = "minimum"\n[missing]'), "minimum"),
        (MAPPING.replace('latency = "ms"', 'latency = "samples_per_second"'), "mean"),
        (MAPPING.replace("tool_summary", "throughput_derived"), "mean"),
    ],
)
def test_the_mapping_says_what_its_latencies_are_and_a_rate_is_a_mean(mapping, expected) -> None:
    release = _parse(mapping=mapping)
    assert {row["statistic"] for row in release.rows} == {expected}
    is_asked = any("statistic" in note for note in release.notes)
    assert is_asked == (expected is None)


def test_a_column_states_the_statistic_of_each_line() -> None:
    table = "net;phone;arithmetic;time;rss;gmacs;top1;kind\n" + "".join(
        f"a;p;fp32;1;1;1;;{kind}\n" for kind in ("mean", "median", "best", "")
    )
    mapping = MAPPING.replace("[units]", 'statistic = "kind"\n[units]')
    rows = _parse(table, mapping).rows
    assert [row["statistic"] for row in rows] == ["mean", "median", None, None]
    assert [drop_reason(row) for row in rows] == [None, None, "unknown statistic", None]


def test_the_mapping_takes_the_placement_and_refuses_an_impossible_one() -> None:
    table = "net;phone;arithmetic;time;rss;gmacs;top1;on;of\n" + "".join(
        f"a;p;fp32;1;1;1;;{on};{of}\n"
        for on, of in (("54", "65"), ("", ""), ("66", "65"), ("-1", "65"), ("5", ""))
    )
    mapping = MAPPING.replace("[units]", 'backend_nodes = "on"\ngraph_nodes = "of"\n[units]')
    rows = _parse(table, mapping).rows
    assert [(row["backend_nodes"], row["graph_nodes"]) for row in rows[:2]] == [
        (54, 65), (None, None),
    ]  # fmt: skip
    bad = "impossible placement"
    assert [drop_reason(row) for row in rows] == [None, None, bad, bad, None]


def test_a_figure_that_cannot_be_is_named_with_line_column_and_range() -> None:
    for old, new, said in (
        ("12.5;30", "1e-30;30", "line 2: time is 1e-30 ms, and latency must be from 1 to 1e+15 ns"),
        ("12.5;30", "1e300;30", "line 2: time is 1e300 ms, and latency must be"),
        ("1300;40", "1300;1e300", "line 4: rss is 1e300 MiB, and memory must be from 0 to"),
        ("1300;40;0.5", "1300;40;1e308", "line 4: gmacs is 1e308 G, and macs must be from 0"),
    ):
        assert old in TABLE
        with pytest.raises(AnalysisError, match=re.escape(said)):
            _parse(TABLE.replace(old, new))


def test_a_file_that_is_no_csv_is_refused() -> None:
    for table in (b'net;phone\n"a;b', b"net;\xff"):
        with pytest.raises(BadFileError, match=r"lab\.csv"):
            parse_csv("lab.csv", table, MAPPING.encode())
