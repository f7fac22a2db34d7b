"""Names and patterns: several are a union, and equal selections are equal."""

import fnmatch

import polars as pl
import pytest
from daily import daily
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.name_patterns import matches
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import make_table

letters = st.text(alphabet="ab.|\n", max_size=4)
patterns = st.lists(st.text(alphabet="ab.|\n*", min_size=1, max_size=5), min_size=1, max_size=4)


@pytest.mark.slow
@given(st.lists(letters, min_size=1), patterns)
def test_a_text_fits_several_patterns_if_it_fits_one(texts: list[str], given: list[str]) -> None:
    found = pl.DataFrame({"name": texts}).select(matches("name", *given))["name"].to_list()
    # fnmatch gives `?` and `[` a meaning; the alphabet has neither.
    assert found == [any(fnmatch.fnmatchcase(text, one) for one in given) for text in texts]


@pytest.mark.slow
@pytest.mark.parametrize("pattern", daily(["*a{}*", "a*{}*" + 10 * "b*"], "*a{}*"))
def test_ten_thousand_patterns_are_matched(pattern: str) -> None:
    given = [pattern.format(number) for number in range(10_000)]
    names = pl.DataFrame({"name": ["xa77x", "x", None]})
    found = names.select(matches("name", *given))["name"].to_list()
    assert found == [pattern.startswith("*"), False, None]


def test_a_list_of_one_equals_its_name_and_no_list_is_empty() -> None:
    one = Selection(sweep="s", model="m*")
    assert one == Selection(sweep=["s"], model=("m*", "m*"))
    assert hash(one) == hash(Selection(sweep=["s"], model=["m*"]))
    assert (Selection().sweeps, Selection().models) == ((), ())
    for empty in ({"sweep": []}, {"model": ()}):
        with pytest.raises(AnalysisError, match="empty"):
            Selection(**empty)


def test_the_newest_of_each_model_and_platform_counts_among_the_named_sweeps(make_attempts) -> None:
    def row(sweep: str, model: str, ms: float) -> dict[str, object]:
        return {"sweep_id": sweep, "model": model, "latency_p50_ns": ms * 1e6, "device": "d"}

    frame = make_attempts(
        [row("s1", "m0", 1), row("s1", "m1", 2), row("s2", "m0", 3), row("s3", "m0", 4)]
    )
    cells = Session(frame, Selection(sweep=["s1", "s2"])).cells.cells
    assert dict(cells.select("model", "latency_ns").iter_rows()) == {"m0": 3e6, "m1": 2e6}


def test_the_only_end_of_a_name_is_the_model_and_is_said(make_attempts) -> None:
    names = ("lab:n3", "lab:n4", "other:n4", "n5", "lab:n5")
    frame = make_attempts({"model": name, "cell_key": name} for name in names)
    table = make_table("latency", frame, Selection(model="n3"))
    assert table.frame["model"].to_list() == ["lab:n3"]
    assert any("'n3' is lab:n3" in note for note in table.notes)
    assert make_table("latency", frame, Selection(model="n5")).frame["model"].to_list() == ["n5"]
    with pytest.raises(AnalysisError, match="several") as several:
        make_table("latency", frame, Selection(model="n4"))
    assert "lab:n4, other:n4" in several.value.remedy
