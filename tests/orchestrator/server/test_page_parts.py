"""Tables and assets as a template gets them."""

import pytest

from fleetrank.orchestrator.server.pages.page_parts import MAX_ROWS, asset, facts_grid, grid, render


def test_a_grid_leaves_out_what_says_nothing_and_links_what_has_a_page() -> None:
    rows = [
        {"model": "a&b", "ms": 1.5, "energy": None, "flags": [], "is_x": True},
        {"model": "c", "ms": None, "energy": None, "flags": [], "is_x": False},
    ]
    table = grid("T", rows)
    assert table.heads == ("model", "ms", "is x")
    name, number, flag = table.rows[0]
    assert name.href == "/model?name=a%26b"
    assert (number.text, number.is_number) == ("1.500", True)
    assert (flag.text, flag.is_number) == ("yes", False)
    # A missing number stands where the others do.
    assert (table.rows[1][1].text, table.rows[1][1].is_number) == ("-", True)


def test_a_long_grid_is_cut_and_says_so() -> None:
    table = grid("T", [{"n": n} for n in range(MAX_ROWS + 5)], ["first"])
    assert len(table.rows) == MAX_ROWS
    assert table.notes[0] == "first"
    assert str(MAX_ROWS + 5) in table.notes[1]


def test_unknown_facts_are_left_out() -> None:
    assert [row[0].text for row in facts_grid("F", {"a": 1, "b": None}).rows] == ["a"]


def test_templates_escape_every_value() -> None:
    values = {"title": "<i>", "here": "", "message": "<script>x</script>", "remedy": "'\"&"}
    text = bytes(render("error.html.j2", values).body).decode()
    assert "<script>x" not in text
    assert "&lt;script&gt;x" in text
    assert "<i>" not in text


def test_only_our_own_assets_are_there() -> None:
    assert "--paper" in asset("page.css")
    assert "function drawChart" in asset("time.js")
    assert "vegaEmbed" in asset("vega.js")
    with pytest.raises(FileNotFoundError):
        asset("nothing.js")
