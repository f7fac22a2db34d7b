import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.device_agents.device_output import (
    CUT,
    MAX_LINE_CHARACTERS,
    cut_lines,
    lines_of,
    value_of,
    whole_number,
    without_long_lines,
)
from fleetrank.device_agents.errors import BadOutputError

LONGEST = "1" * MAX_LINE_CHARACTERS


def test_a_line_at_the_bound_is_whole_and_a_longer_one_is_cut_and_says_so() -> None:
    text = f"a\n{LONGEST}\n{LONGEST}2\nb"
    assert cut_lines(text) == f"a\n{LONGEST}\n{LONGEST}{CUT}\nb"


def test_no_figure_is_read_from_a_line_that_was_cut() -> None:
    text = f"a\n{LONGEST}23\nlevel: 4\n{'x' * MAX_LINE_CHARACTERS}\nlevel: 5"
    for known in (text, cut_lines(text)):
        assert lines_of(known) == ["a", "level: 4", "x" * MAX_LINE_CHARACTERS, "level: 5"]
        assert "1" not in without_long_lines(known)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_with_short_lines_stays_as_it_is(text: str) -> None:
    assert cut_lines(text) == without_long_lines(text) == text


def test_the_first_line_with_the_name_counts() -> None:
    assert value_of("x level: 1\r\n level : 2 \r\nlevel: 3", "level") == "2"
    assert value_of("levels: 1", "level") is None
    assert value_of("a=b=c", "a", "=") == "b=c"


def test_a_number_is_whole_or_another_text_or_refused() -> None:
    assert [whole_number(text) for text in ("7", "-7", "007")] == [7, -7, 7]
    assert [whole_number(text) for text in ("", "-", "--7", "+7", "7.0", "٣", "1_0")] == [None] * 7
    with pytest.raises(BadOutputError, match="5000 digits; what was read is '111"):
        whole_number("1" * 5000)
