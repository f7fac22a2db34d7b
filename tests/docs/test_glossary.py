"""The words of the page mean what the documentation says."""

import re
from pathlib import Path

from fleetrank.analysis.stored.columns import SCHEMA
from fleetrank.analysis.tables.glossary import TERMS, meaning_of_column

GLOSSARY = (Path(__file__).parents[2] / "docs/glossary.md").read_text()
ROWS = re.findall(r"^\| ([^|]+) \| (.+) \|$", GLOSSARY, re.MULTILINE)


def test_the_page_and_the_documentation_give_a_word_one_meaning() -> None:
    documented = dict(ROWS)
    assert {word: documented.get(word) for word in TERMS} == dict(TERMS)


def test_a_word_is_explained_once() -> None:
    words = [word for word, _ in ROWS if word not in ("word", "---")]
    assert len(words) == len(set(words)) > 40


def test_columns_of_rows_that_carry_a_word_are_explained() -> None:
    assert meaning_of_column("platform_key") == TERMS["platform"]
    assert meaning_of_column("tier") == "gpu, cpu or edge"
    assert meaning_of_column("flops_rank") is None
    assert {"platform_key", "tier", "family", "flops"} <= set(SCHEMA)


def test_precision_of_a_platform_is_not_explained_as_that_of_a_frontier() -> None:
    assert meaning_of_column("precision") is None
