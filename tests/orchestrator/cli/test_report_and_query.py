"""`report` and `query` as they are typed, and one table of what commands refuse."""

import csv
import io
from pathlib import Path

import polars as pl
import pytest
from fleet_rows import PLACES, Place, write_results


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("workspace")
    (root / "cluster.yaml").touch()
    simulated = Place(device="sim", tier="edge", runtime="onnx", gflops=9, origin="simulated")
    write_results(root / "results", places=[*PLACES, simulated], n_samples=5)
    return root


REFUSED = [
    ("report build --sweep nope", 4, "paper13-"),
    ("report show latncy", 2, "latency"),
    ("report show latency --runtime onx", 2, "onnx"),
    ("report show latency --family cnn", 2, "standard_cnn"),
    ("report show latency --source-tier phone", 2, "edge"),
    ("report show latency --format yaml", 2, "markdown"),
    # The option of another part, and a misspelt word of an own one.
    ("report show ceiling", 2, "fleetrank report show trust --part ceiling"),
    ("report show transfer --part phases --along runtime", 2, "add --part ranks"),
    ("report show latency --part memroy", 2, "did you mean 'memory'"),
    ("report show predict --quantity memroy", 2, "did you mean 'memory'"),
    ("report show choose --goal fame", 2, "fame"),
    ("report show claims --claims missing.toml", 2, "missing.toml"),
    ("report show claims --claims cluster.yaml", 2, "cluster.yaml"),
    ("predict --device pixel-7 --coverage 0", 2, "->"),
    ("predict --device pixel-7 --quantity speed", 2, "->"),
    ("faster mobilenet_v2 --users users.csv", 2, "two models"),
    ("models list --columns ,", 2, "->"),
    ("models list --descending", 2, "->"),
    ("models list --sort nothing", 2, "->"),
    ("results export --include-simulated", 2, "--standard-metrics"),
    ("results export --standard-metrics --table evaluations", 2, "--standard-metrics"),
    ("results export --standard-metrics --format parquet", 2, "--standard-metrics"),
    ("results import --from demo x", 2, "'demo' has no path"),
    ("results import --from timm", 2, "'timm' needs the path"),
    ("results import --from workspace", 2, "another workspace needs its path"),
    ("results import --from timm missing", 2, "->"),
    ("devices add --adb 1 --kind cpu", 2, "--adb is for phones"),
    ("devices add box --kind cpu --tool a=b", 2, "--tool is only for phones"),
    ("devices add box --kind cpu --option threads=[", 2, "is not a valid value"),
    ("query", 2, "--tables"),
    ("query SQL DROP VIEW models", 2, "query --tables"),
    ("query SQL SELECT * FROM read_csv('/etc/passwd')", 2, "query --tables"),
    ("query SQL SELEC 1", 2, "query --tables"),
    # Values and texts without a form.
    ("query SQL SELECT DATE '5877642-06-25'", 2, "9999"),
    ("query SQL SELECT '\udcff'", 2, "UTF-8"),
    ("query SQL SELECT 1::UHUGEINT", 2, "VARCHAR"),
]


@pytest.mark.parametrize(("line", "code", "said"), REFUSED, ids=[line for line, _, _ in REFUSED])
def test_what_is_refused_has_its_exit_code_and_says_why(asked, line, code, said) -> None:
    words, _, sql = line.partition(" SQL ")
    answer = asked(words, *([sql] if sql else []))
    assert (answer.code, answer.out) == (code, "")
    assert said in answer.err
    assert "panic" not in answer.err


@pytest.mark.parametrize("line", ["report build", "report show latency", "query SELECT+1"])
def test_no_result_is_exit_code_4_with_the_remedy(asked, tmp_path: Path, line: str) -> None:
    (tmp_path / "cluster.yaml").touch()
    answer = asked("", *(word.replace("+", " ") for word in line.split()), root=tmp_path)
    assert answer.code == 4
    assert "fleetrank sweep run" in answer.err
    assert not (tmp_path / "report.html").exists()


def test_build_prints_the_path_and_ends_with_the_answer(asked, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    answer = asked("report build --out", str(out))
    assert (answer.code, answer.out.strip()) == (0, str(out))
    assert "times as fast as" in answer.err
    page = out.read_text()
    assert "Not measured" not in page
    assert ">tags<" not in page, "no sweep has one"


def test_show_prints_json_for_programs(asked) -> None:
    rows = asked("report show latency --model res* --runtime onnx --json").rows
    assert len(rows) == 6
    assert {row["model"] for row in rows} == {"resnet18", "resnet50"}


def test_models_come_from_options_and_from_a_file(asked, tmp_path: Path) -> None:
    path = tmp_path / "models.txt"
    show = "report show latency --runtime onnx --json --models-file"
    path.write_text("# the study's\nvit*\nresnet50\n")
    unknown = asked(show, str(path), "--model", "res*")
    assert (unknown.code, "no model fits 'vit*'" in unknown.err) == (4, True)
    path.write_text("# the study's\ndeit*\nresnet50 # twice\n")
    models = {row["model"] for row in asked(show, str(path), "--model", "res*").rows}
    assert models == {"resnet18", "resnet50", "deit_tiny"}
    path.write_text("resnet18\n\x1b[2J\n")
    hostile = asked(show, str(path))
    assert (hostile.code, "line 2" in hostile.err) == (2, True)


def test_several_sweeps_are_read_together_and_each_must_exist(asked, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").touch()
    names = ("a-20261120T080000-aa11", "b-20261121T080000-bb22", "c-20261122T080000-cc33")
    for name, place in zip(names, PLACES[::2], strict=True):
        write_results(tmp_path / "results", places=[place], repeats=1, n_samples=2, sweep=name)
    show = f"report show latency --json --sweep {names[0]} --sweep"
    keys = {row["platform_key"] for row in asked(show, names[2], root=tmp_path).rows}
    assert {key.partition("/")[0] for key in keys} == {"cpu-3fa2c1", "rtx-4090"}
    unknown = asked(show, "c-20261122", root=tmp_path)
    assert (unknown.code, f"did you mean '{names[2]}'" in unknown.err) == (4, True)


def test_show_prints_every_format(asked) -> None:
    for form, mark in (
        ("table", "-----"), ("csv", "model,platform_key"), ("markdown", "| ---"), ("latex", "\\"),
    ):  # fmt: skip
        assert mark in asked(f"report show latency --format {form}").out, form


def test_an_option_with_many_words_may_be_repeated(asked) -> None:
    show = "report show trust --part findings --include-simulated --json"
    rows = asked(f"{show} --what tied-latency --what too-few-models").rows
    assert {row["what"] for row in rows} <= {"tied latency", "too few models"}


def test_a_setting_reaches_its_table(asked) -> None:
    rows = asked("report show choose --part fewest --threshold -1 --json").rows
    assert sum(row["is_owned"] for row in rows) == 1


def test_query_prints_rows_and_says_when_there_are_more(asked) -> None:
    sql = "SELECT model FROM models ORDER BY model"
    answer = asked("query --max-rows 2", sql)
    assert answer.out.split() == ["model", "convnext_tiny", "deit_tiny"]
    assert "the first 2 rows" in answer.err
    found = asked("query --max-rows 2 --json", sql).json
    assert found == [{"model": "convnext_tiny"}, {"model": "deit_tiny"}]


def test_query_says_which_rows_it_leaves_out_and_how_to_get_them(asked) -> None:
    for view, devices in (("measurements", []), ("all_measurements", [{"device": "sim"}])):
        answer = asked("query --json", f"SELECT DISTINCT device FROM {view} WHERE device = 'sim'")
        assert answer.json == devices
        assert ("simulated" in answer.err) == (view == "measurements")
        assert ("all_measurements has every row" in answer.err) == (view == "measurements")


def test_query_prints_lists_as_json_in_csv(asked) -> None:
    answer = asked(
        "query --format csv", "SELECT [1, 2] AS l, NULL AS n, '@A1' AS f, -1 AS \"=x\" FROM models"
    )
    row = next(csv.DictReader(io.StringIO(answer.out)))
    assert row == {"l": "[1, 2]", "n": "", "f": "'@A1", "'=x": "-1"}, "no text is a formula"


def test_query_writes_a_file(asked, tmp_path: Path) -> None:
    sql = "SELECT DISTINCT model, 2.0::DOUBLE AS two FROM models ORDER BY model LIMIT 2"
    for form, read in (("csv", pl.read_csv), ("json", pl.read_json), ("parquet", pl.read_parquet)):
        out = tmp_path / f"x.{form}"
        assert asked(f"query --format {form} --out {out}", sql).code == 0
        assert read(out).rows() == [("convnext_tiny", 2.0), ("deit_tiny", 2.0)]
        assert asked(f"query --out {out}", sql).code == 2


def test_query_lists_its_columns_without_any_result(asked, tmp_path: Path) -> None:
    columns = asked("query --tables --json", root=tmp_path).json
    assert {"view", "column", "dtype", "unit", "doc"} == set(columns[0])
    units = {column["column"]: column["unit"] for column in columns}
    assert (units["peak_memory_bytes"], units["temp_c_before"]) == ("bytes", "°C")
    assert (units["model"], "latency_p50_ns" in units) == (None, True)


def test_query_beyond_its_limits_is_exit_code_2_and_names_the_limit(asked) -> None:
    answer = asked("query --timeout-s 3", "SELECT repeat('a', 2000000000)")
    assert (answer.code, answer.out) == (2, "")
    assert "1GB" in answer.err or "3 s" in answer.err


def test_query_writes_null_for_what_json_lacks_and_says_so(asked) -> None:
    sql = "SELECT 'nan'::DOUBLE AS a, ['-inf'::DOUBLE, 1] AS b, MAP {DATE '2026-01-02': 2} AS c"
    answer = asked("query --json", sql)
    assert answer.json == [{"a": None, "b": [None, 1.0], "c": {"2026-01-02": 2}}]
    assert "2 values" in answer.err
    assert "nan" in asked("query", sql).out


def test_query_without_rows_is_an_empty_list(asked) -> None:
    for form, text in (("json", "[]\n"), ("csv", "model\n"), ("table", "(none)\n")):
        found = asked(f"query --format {form}", "SELECT model FROM models WHERE false")
        assert (found.code, found.out) == (0, text)


def test_a_query_that_fails_leaves_the_old_file_and_none_beside_it(asked, tmp_path: Path) -> None:
    out = tmp_path / "x.json"
    out.write_text("old")
    assert asked(f"query --json --out {out}", "SELECT nothing").code == 2
    assert out.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
