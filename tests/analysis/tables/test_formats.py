import csv
import io
import json

import polars as pl
import pytest

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.tables.formats import FORMATS, csv_text, render
from fleetrank.analysis.tables.table import Table


@pytest.fixture
def table() -> Table:
    frame = pl.DataFrame(
        {
            "model": ["a|b_<i>", 'c,"d"&%'],
            "latency_ms": [1234.5678, None],
            "flags": [["x", "y"], []],
        }
    )
    return Table(title="50 % of_it", frame=frame, notes=("n = 2 & more",))


def test_text_shows_four_digits_and_a_dash_for_missing(table: Table) -> None:
    assert render(table, "table").splitlines() == [
        "50 % of_it",
        "",
        "model    latency_ms  flags",
        "-------  ----------  -----",
        "a|b_<i>        1235  x, y",
        'c,"d"&%           -  -',
        "",
        "Note: n = 2 & more",
    ]


def test_json_keeps_all_digits_and_null(table: Table) -> None:
    content = json.loads(render(table, "json"))
    assert content["rows"][0] == {"model": "a|b_<i>", "latency_ms": 1234.5678, "flags": ["x", "y"]}
    assert content["rows"][1]["latency_ms"] is None
    assert content["notes"] == ["n = 2 & more"]


def test_csv_reads_back(table: Table) -> None:
    rows = list(csv.DictReader(io.StringIO(render(table, "csv"))))
    assert rows[0] == {"model": "a|b_<i>", "latency_ms": "1234.5678", "flags": "x;y"}
    assert rows[1] == {"model": 'c,"d"&%', "latency_ms": "", "flags": ""}


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0d"])
def test_no_text_of_a_csv_is_a_formula_and_numbers_stay_numbers(start: str) -> None:
    text = f"{start}HYPERLINK(1)"
    frame = pl.DataFrame({"a": [text, "b-c", None], "b": [-1.5, 2, None], "c": [[text], [], None],
                          "d": [[-1, 2], [3], None]})  # fmt: skip
    found = list(csv.reader(io.StringIO(csv_text(frame), newline="")))
    assert found[1:] == [
        [f"'{text}", "-1.5", f"'{text}", "-1;2"],
        ["b-c", "2.0", "", "3"],
        [""] * 4,
    ]


def test_markdown_escapes_what_would_end_a_cell_or_become_html(table: Table) -> None:
    lines = render(table, "markdown").splitlines()
    assert lines[2:6] == [
        r"| model | latency\_ms | flags |",
        "| --- | ---: | --- |",
        r"| a\|b\_\<i\> | 1235 | x, y |",
        r'| c,"d"&amp;% | - | - |',
    ]


def test_latex_escapes_every_special_character(table: Table) -> None:
    text = render(table, "latex")
    assert r"\caption{50 \% of\_it}" in text
    assert r"a\textbar{}b\_\textless{}i\textgreater{} & 1235 & x, y \\" in text
    assert r"c,\textquotedbl{}d\textquotedbl{}\&\% & - & - \\" in text
    assert "% n = 2 & more\n" in text


def test_latex_has_intervals_beside_their_figure_and_headings_of_the_field() -> None:
    frame = pl.DataFrame(
        {
            "source": ["a", "b"], "n_models": [9, 9], "rho": [0.5, 0.25], "low": [0.1, None],
            "high": [0.9, None], "null_mean": [0.0, 0.1], "residual_p": [0.5, 0.25],
            "other": [1.0, 2.0],
        }
    )  # fmt: skip
    columns = ("source", "n_models", "rho", "interval", "null_mean", "residual_p")
    hostile = ("one\n\\input{/etc/passwd}",)
    text = render(Table(title="t", frame=frame, columns=columns, notes=hostile), "latex")
    assert r"source & $n$ & $\rho$ [95\,\% CI] & null & residual $p$ \\" in text
    assert r"a & 9 & 0.50 [0.10, 0.90] & 0.00 & 0.5000 \\" in text
    assert r"b & 9 & 0.25 & 0.10 & 0.2500 \\" in text
    before = text[: text.index(r"\begin{table}")]
    assert all(line.startswith("% ") for line in before.splitlines())


def test_backslash_and_braces_do_not_escape_latex() -> None:
    frame = pl.DataFrame({"x": [r"\input{/etc/passwd}"]})
    text = render(Table(title="t", frame=frame), "latex")
    assert r"\textbackslash{}input\{/etc/passwd\}" in text


@pytest.mark.parametrize("form", ["table", "markdown", "latex"])
def test_control_characters_of_a_name_reach_no_terminal(form: str) -> None:
    frame = pl.DataFrame({"device": ["\x1b[2Jx\ny"]})
    text = render(Table(title="t", frame=frame), form)
    assert "\x1b" not in text
    assert "x\ny" not in text


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_an_empty_table_can_be_written(form: str) -> None:
    frame = pl.DataFrame(schema={"model": pl.String, "rho": pl.Float64})
    assert "rho" in render(Table(title="t", frame=frame), form) or form == "json"


def test_unknown_format_is_told_with_those_known(table: Table) -> None:
    with pytest.raises(AnalysisError, match=r"table.*markdown"):
        render(table, "xml")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_never_enters_a_table(value: float) -> None:
    with pytest.raises(ValueError, match="NaN or infinity"):
        Table(title="t", frame=pl.DataFrame({"rho": [1.0, value]}))


@pytest.mark.parametrize("form", ["json", "csv", "markdown", "latex"])
def test_a_width_changes_text_only(form: str) -> None:
    table = Table(title="T", frame=pl.DataFrame({"a": ["x" * 300]}), notes=("n " * 200,))
    assert render(table, form, width=200) == render(table, form)
