"""Texts of the code: those that a page quotes stand there, and none names an option."""

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
PRINTS = (
    "orchestrator/cli/",
    # Commands that the user copies into another terminal.
    "device_agents/android/discovery.py",
    # Below a table on a terminal, and never in a message.
    "analysis/tables/formats.py",
    # Makes an option of `name=value`.
    "foundation/wording.py",
)
"""What writes for a terminal only."""
OF_OTHERS = re.compile(
    r"`(?:ray|ssh|optimum-cli) [^`]*`?|pip install [^`]*|adb [^`]*|settings --user 0"
)
"""Commands of other programs have their own options."""
OPTION = re.compile(r"(?:^|[\s`(])--[a-z][a-z-]+")

Text = tuple[int, str]
"""A line number, and a literal with `FIELD` for each value."""


def _texts(source: str) -> Iterator[Text]:
    """Every literal that is not a docstring; one that is put together counts as a whole."""
    tree = ast.parse(source)
    left_out = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):  # what holds a part comes before it
        if id(node) in left_out:
            continue
        if isinstance(node, ast.JoinedStr):
            left_out |= {id(part) for part in node.values}
            parts = (
                part.value if isinstance(part, ast.Constant) else FIELD for part in node.values
            )
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


@cache
def _texts_of_the_code() -> dict[str, tuple[Text, ...]]:
    paths = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
    return {
        path.relative_to(ROOT).as_posix(): tuple(_texts(path.read_text(encoding="utf-8")))
        for path in paths
    }


def _quotes() -> Iterator[str]:
    """What stands in backticks in the first column of a table headed `message`."""
    for page in sorted((ROOT / "docs").glob("*.md")):
        is_inside = False
        for line in page.read_text(encoding="utf-8").splitlines():
            first = line.split("|")[1].strip() if line.startswith("|") else ""
            is_inside = bool(first) and (is_inside or first.startswith("message"))
            if is_inside:
                yield from re.findall(r"`([^`]+)`", first)


def _is_in_the_code(quote: str) -> bool:
    """Whether one text of the code has all parts of the quote, in order."""
    parts = [part.strip() for part in quote.split("...") if part.strip()]
    pattern = re.compile(f".*{FIELD}.*".join(map(re.escape, parts)), re.DOTALL)
    texts = (text for one in _texts_of_the_code().values() for _, text in one)
    # Most texts lack a part, which is told sooner than by the expression.
    return any(all(map(text.__contains__, parts)) and pattern.search(text) for text in texts)


def test_a_quoted_message_is_one_of_the_code(subtests: pytest.Subtests) -> None:
    quotes = list(_quotes())
    assert len(quotes) > 20
    for quote in quotes:
        with subtests.test(quote):
            assert _is_in_the_code(quote)


def _with_option(texts: tuple[Text, ...]) -> list[str]:
    """Those with a space, which words of a command do not have."""
    found = (text for _, text in texts if " " in text.strip())
    return [text for text in found if OPTION.search(OF_OTHERS.sub("", text))]


def test_no_message_names_an_option_of_the_command_line() -> None:
    # Write `name=value`: with_flags makes it an option on a terminal.
    texts = _texts_of_the_code().items()
    found = {path: _with_option(one) for path, one in texts if not path.startswith(PRINTS)}
    assert {path: texts for path, texts in found.items() if texts} == {}
