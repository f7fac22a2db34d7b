"""Few assertions hold a whole sentence: a message may be worded better without a broken test."""

from pathlib import Path

from sentences import sentences, sentences_of
from wording import has

TESTS = Path(__file__).parents[1]
MOST = 78
"""They only become fewer: lower this number with each that goes."""


def test_there_are_few_and_they_become_fewer() -> None:
    counts = sentences_of(TESTS)
    worst = sorted(counts, key=lambda path: -counts[path])[:5]
    assert sum(counts.values()) <= MOST, [path.relative_to(TESTS).as_posix() for path in worst]


def test_a_sentence_is_found_and_figures_names_and_inputs_are_none() -> None:
    found = 'assert "one two three four five" in text'
    others = 'assert "a/b --c-d e_f g=1 2 3" in text', 'text = "one two three four five"'
    assert [number for number, _text in sentences(f"\n{found}\n")] == [2]
    assert [sentences(line) for line in others] == [[], []]


def test_parts_are_whole_words_in_their_order() -> None:
    said = ["nothing", "no interval: 8 models, at least 9.5 needed"]
    assert has(said, "8", "9.5")
    assert has("runs of net_a, 3", "net_a", "3")
    for parts in (("9.5", "8"), ("9",), ("5",), ("model",), ("inter",)):
        assert not has(said, *parts)
