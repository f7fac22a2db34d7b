"""`--columns`, `--sort`, `--descending`, `--limit`, as they are typed."""

import csv
import io
from pathlib import Path

import command_line
import pytest
from command_line import draw_inside
from daily import daily
from fleet_rows import NETS, PLACES

from fleetrank.analysis.tables.tables import REQUESTS
from fleetrank.models.cards.zoo import load_language_zoo, load_zoo
from fleetrank.orchestrator.cli.listing import TableView
from fleetrank.orchestrator.errors import UsageError

N_CELLS = len(NETS) * len(PLACES)
CELLS = "report show latency"


def _heading(text: str) -> list[str]:
    """The names of the columns, above the rule of a table in a pipe."""
    return text.partition("\n--")[0].splitlines()[-1].split()


def test_missing_values_come_last_in_both_directions() -> None:
    values = [2.0, None, 1.0, 3.0]
    assert TableView(sort="x").order(values) == [2, 0, 3, 1]
    assert TableView(sort="x", is_descending=True).order(values) == [3, 0, 2, 1]
    assert TableView(sort="x").order([[1], "a", None]) == [0, 1, 2]


def test_an_unknown_column_is_an_error_that_names_the_nearest() -> None:
    for view in (TableView(columns=("modle",)), TableView(sort="modle")):
        with pytest.raises(UsageError, match="modle") as raised:
            view.names(["model", "n"])
        assert "'model'" in raised.value.remedy


def test_rows_are_limited_for_people_only() -> None:
    assert TableView().most(80, is_for_people=True) == 50
    assert TableView().most(80, is_for_people=False) == 80
    assert TableView(limit=0).most(80, is_for_people=True) == 80
    assert TableView(is_whole=True).most(80, is_for_people=True) == 80
    assert TableView(limit=7).most(80, is_for_people=False) == 7


@pytest.mark.parametrize("form", daily(["csv", "json"], "json"))
def test_the_slowest_cells_are_those_of_the_whole_table(asked, form: str) -> None:
    def rows(*words: str) -> list[dict[str, str]]:
        answer = asked(f"{CELLS} --format {form}", *words)
        return list(csv.DictReader(io.StringIO(answer.out))) if form == "csv" else answer.rows

    slowest = sorted(rows(), key=lambda row: float(row["latency_p50_ms"]), reverse=True)[:4]
    names = ["latency_p50_ms", "model"]
    chosen = ("--columns", ",".join(names), "--sort", "latency_p50_ms", "--descending")
    found = rows(*chosen, "--top", "4")
    assert found == [{name: row[name] for name in names} for row in slowest]
    assert list(found[0]) == names
    assert rows(*chosen, "--limit", "4") == found


def test_a_listing_has_the_same_options(asked) -> None:
    line = "models list --sort accuracy_top1 --top 2 --columns name"
    answer = asked(line)
    assert answer.out.split() == ["name", "squeezenet1_1", "mobilevit_xxs"]
    assert f"2 of {len(load_zoo() | load_language_zoo())} rows shown" in answer.err
    assert asked(f"{line} --json").json == [{"name": "squeezenet1_1"}, {"name": "mobilevit_xxs"}]


@pytest.mark.parametrize("name", daily(["latency", "choose", "transfer", "trust"], "transfer"))
def test_all_in_a_pipe_has_every_column_and_row(asked, name: str) -> None:
    rows, text = asked(f"report show {name} --json").rows, asked(f"report show {name} --all").out
    assert _heading(text) == list(rows[0])
    assert len(text.partition("\n--")[2].partition("\n\n")[0].splitlines()) == 1 + len(rows)


def test_terminal_and_pipe_show_50_rows_and_the_number_left_out(workspace: Path, asked) -> None:
    line = f"{CELLS} --sort model"
    said = f"50 of {N_CELLS} rows shown; --all"
    assert said in draw_inside(workspace, *line.split()).decode()
    text = asked(line).out
    assert said in text
    assert sum(" to " in line for line in text.splitlines()) == 50
    whole = asked(f"{CELLS} --all").out
    assert (whole.count("per_inference"), "rows shown" in whole) == (N_CELLS, False)


def test_goals_keep_their_figures_at_80_columns(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(command_line._TERMINAL, "COLUMNS", "80")
    text = draw_inside(workspace, "report", "show", "choose").decode()
    for name in ("value", "interval"):
        assert name in text.partition("Hidden columns:")[0]
    assert "0.9341" in text


@pytest.mark.parametrize("words", daily([one.words for one in REQUESTS], "pairs --part tests"))
def test_a_table_has_at_most_8_columns_and_no_repeated_reason(asked, words: str) -> None:
    answer = asked(f"report show {words}")
    if answer.code != 0:
        pytest.skip("these results cannot give it")
    names = _heading(answer.out)
    assert words == "latency" or len(names) <= 8, "labels of a matrix have spaces"
    assert "reason" not in names or "dropped" in words
    rows = asked(f"report show {words} --json").rows
    for name in names if len(rows) > 1 else ():
        if name in rows[0]:
            assert len({str(row[name]) for row in rows}) > 1, f"{name} belongs into the heading"


def test_latency_is_a_matrix_with_a_line_on_intervals(asked) -> None:
    text = asked(CELLS).out
    (line,) = [line for line in text.splitlines() if line.startswith("resnet50 ")]
    assert len(line.split()) == 1 + len(PLACES)
    assert "95 % intervals over processes: half-width" in text
    (mine,) = [line for line in text.splitlines() if line.startswith("model ")]
    assert mine.split("  ")[0] == "model"
    for place in PLACES:
        assert f"{place.device}, {place.runtime}" in mine


def test_transfer_says_in_a_word_what_a_rho_shows(asked) -> None:
    text = asked("report show transfer").out
    wanted = ["measure", "source", "target", "rho", "interval", "conclusion", "residual_p"]
    assert _heading(text) == wanted
    assert "In these rows: models: 13" in text
    assert "not beyond" in text
    assert "too few" in asked("report show transfer --model resnet* --model mnas*").out
