import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.foundation.visible_text import shortened, visible, visible_line

ANY_TEXT = st.text(st.characters(), max_size=200)  # lone surrogates, too


@pytest.mark.parametrize(
    "text",
    [
        "\x1b]0;owned\x07", "\x1b[2J", "\x9b2J", "\x00", "\x7f", "\x85", "a\rb", "\b", "\x0c",
        "a\u202eb", "\u2066a\u2069", "\u200ea", "\u200fa", "\u061ca", "a\u200bb", "a\u2060b",
        "\ufeffa", "a\u200db", "a\u200cb", "\u2028", "\u2029", "\ud800", "\U000e0041",
    ],
)  # fmt: skip
def test_what_drives_a_terminal_or_hides_itself_is_escaped(text) -> None:
    shown = visible(text)
    assert shown != text
    assert "\\u" in shown
    assert shown.isprintable()


@pytest.mark.parametrize(
    "text",
    [
        "résumé", "re\u0301sume\u0301", "Ελλάδα", "Москва", "東京\u3000タワー", "서울", "שלום",
        "العربية", "\u0645\u06cc\u200c\u062e\u0648", "क्\u200dष", "👩\u200d💻", "🏳️\u200d🌈",
        "葛\U000e0100", "a\u00a0b",
        "two\nlines\tand a tab", "a\r\nb", "\\u001b", "2 µs ± 1 %",
    ],
)  # fmt: skip
def test_ordinary_text_of_any_script_stays_as_it_is(text) -> None:
    assert visible(text) == text


def test_a_line_holds_no_line_ends_and_no_tabs() -> None:
    assert visible_line("a\nb\tc\r\n") == r"a\u000ab\u0009c\u000d\u000a"


@given(ANY_TEXT)
def test_nothing_unsafe_is_left_and_doing_it_twice_changes_nothing(text) -> None:
    shown = visible_line(text)
    assert not [c for c in shown if unicodedata.category(c) in {"Cc", "Cs", "Zl", "Zp"}]
    assert not [c for c in shown if unicodedata.bidirectional(c) in {"RLO", "LRO", "RLI", "PDF"}]
    assert visible_line(shown) == shown
    shown.encode()


@given(ANY_TEXT)
def test_json_keeps_its_value(text) -> None:
    written = json.dumps([text], ensure_ascii=False, indent=1)
    assert json.loads(visible(written)) == [text]


@given(ANY_TEXT, st.integers(10, 50))
def test_a_shortened_text_keeps_both_ends(text, most) -> None:
    short = shortened(text, most)
    assert len(short) <= most or short == text
    assert len(text) > most or short == text
    assert short[:2] == text[:2]
    assert short[-2:] == text[-2:]
