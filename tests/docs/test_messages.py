"""Messages that a page quotes in a table stand in the code, so a reader can search for them."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("analysis", "device_agents", "foundation", "models", "orchestrator")
FIELD = "\0"
"""Stands for a value that the message fills in; a page writes `...` for it."""


def _quotes(page: Path) -> Iterator[str]:
    """What stands in backticks in the first column of a table headed `message`."""
    is_inside = False
    for line in page.read_text(encoding="utf-8").splitlines():
        first = line.split("|")[1].strip() if line.startswith("|") else ""
        is_inside = bool(first) and (is_inside or first.startswith("message"))
        if is_inside:
            yield from re.findall(r"`([^`]+)`", first)


QUOTED = [
    pytest.param(quote, id=f"{page.stem}: {quote}")
    for page in sorted((ROOT / "docs").glob("*.md"))
    for quote in _quotes(page)
]


def _text(node: ast.expr) -> str | None:
    """The text of a literal, also one put together; `None` for any other expression."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or FIELD for part in node.values)
    return None


@cache
def _literals() -> tuple[str, ...]:
    """Every text in the code that is not a docstring."""
    found = []
    for name in PACKAGES:
        for path in (ROOT / name).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            found += [
                text
                for node in ast.walk(tree)
                if isinstance(node, ast.expr) and id(node) not in alone
                if (text := _text(node)) is not None
            ]
    return tuple(found)


def _is_in_the_code(quote: str) -> bool:
    """Whether one text of the code has all parts of the quote, in order."""
    parts = [re.escape(part.strip()) for part in quote.split("...") if part.strip()]
    pattern = re.compile(f".*{FIELD}.*".join(parts), re.DOTALL)
    return any(pattern.search(text) for text in _literals())


@pytest.mark.parametrize("quote", QUOTED)
def test_a_quoted_message_is_one_of_the_code(quote: str) -> None:
    assert _is_in_the_code(quote)


def test_tables_of_messages_are_found_and_other_words_are_not_in_the_code() -> None:
    assert len(QUOTED) > 20
    assert _is_in_the_code("no build of ... is known")
    assert not _is_in_the_code("no build of ... is mentioned")
    assert not _is_in_the_code("a sentence that only this test holds")
