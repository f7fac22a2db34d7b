"""The lint of words finds what it should, and nothing else."""

import pytest
from plain_words import PLAIN, ROOT, files, findings


@pytest.mark.parametrize("word", PLAIN)
def test_each_word_is_found_in_any_case_with_its_line(word: str) -> None:
    assert findings(f"first\na line with {word.upper()} in it") == [(2, word)]


@pytest.mark.parametrize("text", ["untold", "recommend", "this is not a problem", "one of them"])
def test_words_that_only_look_alike_pass(text: str) -> None:
    assert findings(text) == []


def test_code_pages_and_decisions_are_checked_and_the_history_is_not() -> None:
    checked = {path.relative_to(ROOT).as_posix() for path in files()}
    assert {"README.md", "Makefile", "docs/measuring.md", "docs/decisions/index.md"} <= checked
    assert "models/cards/zoo.toml" in checked
    assert not {"CHANGELOG.md", "docs/generate/plain_words.py"} & checked
