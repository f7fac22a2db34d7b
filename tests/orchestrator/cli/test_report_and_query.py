"""`report` and `query` as they are typed."""

import csv
import io
import json
from pathlib import Path

import polars as pl
import pytest
from fleet_rows import PLACES, Place, write_results

from fleetrank.orchestrator.cli.main import run


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("workspace")
    (root / "cluster.yaml").touch()
    simulated = Place(device="sim", tier="edge", runtime="onnx", gflops=9, origin="simulated")
    write_results(root / "results", places=[*PLACES, simulated], n_samples=5)
    return root


def _run(workspace: Path, *words: str) -> int:
    return run([*words, "--workspace", str(workspace)])


def test_build_prints_the_path_of_the_page(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "page.html"
    assert _run(workspace, "report", "build", "--out", str(out)) == 0
    assert capsys.readouterr().out.strip() == str(out)
    assert "Not measured" not in out.read_text()


@pytest.mark.parametrize("words", [("report", "build"), ("report", "show", "cells")])
def test_no_result_is_exit_code_4_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    (tmp_path / "cluster.yaml").touch()
    assert _run(tmp_path, *words) == 4
    assert "fleetrank sweep run" in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()


def test_an_unknown_sweep_is_exit_code_4_and_names_the_known(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(workspace, "report", "build", "--sweep", "nope") == 4
    assert "paper13-" in capsys.readouterr().err


def test_show_prints_json_for_programs(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("report", "show", "cells", "--model", "res*", "--runtime", "onnx", "--json")
    assert _run(workspace, *words) == 0
    answer = json.loads(capsys.readouterr().out)
    rows = answer["rows"] if isinstance(answer, dict) else answer
    assert len(rows) == 6
    assert {row["model"] for row in rows} == {"resnet18", "resnet50"}


def test_models_come_from_options_and_from_a_file(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "models.txt"
    path.write_text("# the study's\nvit*\nresnet50\n")
    show = ("report", "show", "cells", "--runtime", "onnx", "--json")
    assert _run(workspace, *show, "--model", "res*", "--models-file", str(path)) == 4
    assert "no model fits 'vit*'" in capsys.readouterr().err
    path.write_text("# the study's\ndeit*\nresnet50 # twice\n")
    assert _run(workspace, *show, "--model", "res*", "--models-file", str(path)) == 0
    models = {row["model"] for row in json.loads(capsys.readouterr().out)["rows"]}
    assert models == {"resnet18", "resnet50", "deit_tiny"}
    path.write_text("resnet18\n\x1b[2J\n")
    assert _run(workspace, *show, "--models-file", str(path)) == 2
    assert "line 2" in capsys.readouterr().err


def test_several_sweeps_are_read_together_and_each_must_exist(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cluster.yaml").touch()
    names = ("a-20261120T080000-aa11", "b-20261121T080000-bb22", "c-20261122T080000-cc33")
    for name, place in zip(names, PLACES[::2], strict=True):
        write_results(tmp_path / "results", places=[place], repeats=1, n_samples=2, sweep=name)
    show = ("report", "show", "cells", "--json", "--sweep", names[0], "--sweep")
    assert _run(tmp_path, *show, names[2]) == 0
    keys = {row["platform_key"] for row in json.loads(capsys.readouterr().out)["rows"]}
    assert {key.partition("/")[0] for key in keys} == {"cpu-3fa2c1", "rtx-4090"}
    assert _run(tmp_path, *show, "c-20261122") == 4
    assert f"did you mean '{names[2]}'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("form", "mark"),
    [("table", "-----"), ("csv", "model,platform_key"), ("markdown", "| ---"), ("latex", "\\")],
)
def test_show_prints_every_format(
    workspace: Path, capsys: pytest.CaptureFixture[str], form: str, mark: str
) -> None:
    assert _run(workspace, "report", "show", "cells", "--format", form) == 0
    assert mark in capsys.readouterr().out


def test_an_option_of_a_table_and_its_setting_are_the_same(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(workspace, "report", "show", "cells", "--quantity", "coldstart") == 0
    now = capsys.readouterr()
    assert _run(workspace, "report", "show", "cells", "--set", "quantity=coldstart") == 0
    assert capsys.readouterr() == now


def test_an_option_of_another_table_is_refused_with_the_remedy(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(workspace, "report", "show", "ceiling", "--by", "runtime") == 2
    assert "no setting 'by'" in capsys.readouterr().err
    assert _run(workspace, "report", "show", "cells", "--quantity", "memroy") == 2
    assert "did you mean 'memory'" in capsys.readouterr().err


def test_an_option_with_many_words_may_be_repeated(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = ("--what", "tied-latency", "--what", "too-few-models")
    words = ("report", "show", "quality", "--list", "findings", "--include-simulated")
    assert _run(workspace, *words, *kinds, "--json") == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {row["what"] for row in rows} <= {"tied latency", "too few models"}


def test_selectors_narrow_pairs(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("report", "show", "transfer", "--source-tier", "gpu", "--target", "pixel-7")
    assert _run(workspace, *words, "--format", "csv") == 0
    text = capsys.readouterr().out
    rows = list(csv.DictReader(line for line in io.StringIO(text) if not line.startswith("#")))
    assert {row["source"].split("/")[0] for row in rows if row["level"] == "pair"} == {"rtx-4090"}
    assert {row["target"].split("/")[0] for row in rows if row["level"] == "pair"} == {"pixel-7"}


def test_simulated_rows_enter_when_asked(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(workspace, "report", "show", "cells") == 0
    assert "sim/" not in capsys.readouterr().out
    assert _run(workspace, "report", "show", "cells", "--include-simulated") == 0
    answer = capsys.readouterr().out
    assert "sim/" in answer
    assert "SIMULATED DATA" in answer


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("show", "cels"), "cells"),
        (("show", "cells", "--runtime", "onx"), "onnx, torch or tflite"),
        (("show", "cells", "--family", "cnn"), "standard_cnn"),
        (("show", "cells", "--source-tier", "phone"), "edge"),
        (("show", "cells", "--format", "yaml"), "markdown"),
    ],
)
def test_a_misspelt_word_is_exit_code_2_with_the_known_ones(
    workspace: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], hint: str
) -> None:
    assert _run(workspace, "report", *words) == 2
    assert hint.split(",", maxsplit=1)[0] in capsys.readouterr().err


def test_query_prints_rows_and_says_when_there_are_more(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("query", "SELECT model FROM models ORDER BY model", "--max-rows", "2")
    assert _run(workspace, *words) == 0
    answer = capsys.readouterr()
    assert answer.out.split() == ["model", "convnext_tiny", "deit_tiny"]
    assert "the first 2 rows" in answer.err
    assert _run(workspace, *words, "--json") == 0
    assert json.loads(capsys.readouterr().out) == [
        {"model": "convnext_tiny"}, {"model": "deit_tiny"},
    ]  # fmt: skip


def test_query_says_which_rows_it_leaves_out_and_how_to_get_them(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for view, devices in (("measurements", []), ("all_measurements", [{"device": "sim"}])):
        sql = f"SELECT DISTINCT device FROM {view} WHERE device = 'sim'"
        assert _run(workspace, "query", sql, "--json") == 0
        answer = capfd.readouterr()
        assert json.loads(answer.out) == devices
        assert ("simulated" in answer.err) == (view == "measurements")
        assert ("all_measurements has every row" in answer.err) == (view == "measurements")


def test_query_prints_lists_as_json_in_csv(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sql = "SELECT model, [1, 2] AS l, NULL AS n FROM models LIMIT 1"
    assert _run(workspace, "query", sql, "--format", "csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert rows[0]["l"] == "[1, 2]"
    assert rows[0]["n"] == ""


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_query_writes_a_file(workspace: Path, tmp_path: Path, form: str) -> None:
    out = tmp_path / f"x.{form}"
    sql = "SELECT DISTINCT model, 2.0::DOUBLE AS two FROM models ORDER BY model LIMIT 2"
    words = ("query", sql, "--format", form, "--out", str(out))
    assert _run(workspace, *words) == 0
    read = {"csv": pl.read_csv, "json": pl.read_json, "parquet": pl.read_parquet}[form]
    assert read(out).rows() == [("convnext_tiny", 2.0), ("deit_tiny", 2.0)]
    assert _run(workspace, *words[:2], "--out", str(out)) == 2


def test_query_lists_its_columns_without_any_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(tmp_path, "query", "--tables", "--json") == 0
    columns = json.loads(capsys.readouterr().out)
    assert {"view", "column", "dtype", "unit", "doc"} == set(columns[0])
    units = {column["column"]: column["unit"] for column in columns}
    assert (units["peak_memory_bytes"], units["temp_c_before"]) == ("bytes", "°C")
    assert units["model"] is None
    assert "latency_p50_ns" in {column["column"] for column in columns}


@pytest.mark.parametrize(
    "sql", ["DROP VIEW models", "SELECT * FROM read_csv('/etc/passwd')", "SELEC 1"]
)
def test_query_refuses_with_exit_code_2_and_a_remedy(
    workspace: Path, capsys: pytest.CaptureFixture[str], sql: str
) -> None:
    assert _run(workspace, "query", sql) == 2
    answer = capsys.readouterr()
    assert answer.out == ""
    assert "query --tables" in answer.err


def test_query_without_sql_is_bad_usage(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(workspace, "query") == 2
    assert "--tables" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "message"), [("k", "'k' has no value"), ("k=2", "no setting 'k'")]
)
def test_a_setting_that_cannot_be_is_bad_usage(
    workspace: Path, capsys: pytest.CaptureFixture[str], given: str, message: str
) -> None:
    assert _run(workspace, "report", "show", "cells", "--set", given) == 2
    assert message in capsys.readouterr().err


def test_recommend_answers_every_goal_in_sentences(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(workspace, "recommend") == 0
    text = capsys.readouterr().out
    for goal in ("Early exploration", "Paper comparison", "Production", "Architecture search"):
        assert f"{goal}\n  " in text
    assert "13 models, 6 platforms" in text


def test_recommend_takes_a_goal_and_answers_programs(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(workspace, "recommend", "--goal", "production", "--json") == 0
    assert "real target" in capsys.readouterr().out
    assert _run(workspace, "recommend", "--goal", "fame") == 2


def test_a_setting_reaches_its_table(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("report", "show", "proxies", "--own", "fewest", "--set", "threshold=-1", "--json")
    assert _run(workspace, *words) == 0
    answer = json.loads(capsys.readouterr().out)
    rows = answer["rows"] if isinstance(answer, dict) else answer
    assert sum(row["is_owned"] for row in rows) == 1


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("SELECT DATE '5877642-06-25'", "9999"),
        ("SELECT '\udcff'", "UTF-8"),
        ("SELECT 1::UHUGEINT", "VARCHAR"),
    ],
)
def test_query_refuses_a_value_or_text_without_a_form(
    workspace: Path, capfd: pytest.CaptureFixture[str], sql: str, hint: str
) -> None:
    assert _run(workspace, "query", sql) == 2
    answer = capfd.readouterr()
    assert hint in answer.err
    assert "panic" not in answer.err
    assert answer.out == ""


def test_query_beyond_its_limits_is_exit_code_2_and_names_the_limit(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ("query", "SELECT repeat('a', 2000000000)", "--timeout-s", "3")
    assert _run(workspace, *words) == 2
    answer = capfd.readouterr()
    assert answer.out == ""
    assert "1GB" in answer.err or "3 s" in answer.err


def test_query_writes_null_for_what_json_lacks_and_says_so(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sql = "SELECT 'nan'::DOUBLE AS a, ['-inf'::DOUBLE, 1] AS b, MAP {DATE '2026-01-02': 2} AS c"
    assert _run(workspace, "query", sql, "--json") == 0
    answer = capfd.readouterr()
    assert json.loads(answer.out, parse_constant=pytest.fail) == [
        {"a": None, "b": [None, 1.0], "c": {"2026-01-02": 2}}
    ]
    assert "2 values" in answer.err
    assert _run(workspace, "query", sql) == 0
    assert "nan" in capfd.readouterr().out


def test_query_without_rows_is_an_empty_list(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sql = "SELECT model FROM models WHERE false"
    assert _run(workspace, "query", sql, "--json") == 0
    assert capfd.readouterr().out == "[]\n"
    assert _run(workspace, "query", sql, "--format", "csv") == 0
    assert capfd.readouterr().out == "model\n"
    assert _run(workspace, "query", sql) == 0
    assert capfd.readouterr().out == "(none)\n"


def test_a_query_that_fails_leaves_the_old_file_and_none_beside_it(
    workspace: Path, tmp_path: Path
) -> None:
    out = tmp_path / "x.json"
    out.write_text("old")
    assert _run(workspace, "query", "SELECT nothing", "--json", "--out", str(out)) == 2
    assert out.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_query_on_no_results_is_exit_code_4(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cluster.yaml").touch()
    assert _run(tmp_path, "query", "SELECT 1") == 4
    assert "fleetrank sweep run" in capsys.readouterr().err
