"""What a reader of a page would type and save: its fenced blocks, in order."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path

_FENCE = re.compile(
    r"(?:<!-- not run: (?P<reason>[^>]+?) -->\n+)?"
    r"^```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?[^\n]*\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_SPAN = re.compile(r"(?<!`)`(fleetrank [^`]+)`")
_SYNOPSIS = re.compile(r"[\[|]|\.\.\.")
"""Marks of a form rather than of a command: `show NAME [--format a|b]`."""
COMMAND_LANGUAGES = ("bash", "console")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block.

    Attributes:
        title: the file to save it as; `None` for what is typed or only shown.
        reason: why it cannot be run; `None` where it can.
    """

    language: str
    title: str | None
    reason: str | None
    text: str

    @property
    def is_typed(self) -> bool:
        return self.language in COMMAND_LANGUAGES


def blocks_of(page: str) -> list[Block]:
    """Every fenced block of a page."""
    return [
        Block(
            language=found["language"],
            title=found["title"],
            reason=found["reason"],
            text=found["text"],
        )
        for found in _FENCE.finditer(page)
    ]


def commands_of(block: Block, program: str) -> list[list[str]]:
    """The words after the program's name in each call of it, placeholders included."""
    called = [
        _called(words)
        for line in _logical_lines(script_of(block))
        for words in _simple_commands(line)
    ]
    return [words[1:] for words in called if words[:1] == [program]]


def _called(words: list[str]) -> list[str]:
    """The command itself: after `NAME=value`, or after the `--` of a program that runs it."""
    if "--" in words:
        words = words[words.index("--") + 1 :]
    return list(dropwhile(lambda word: re.fullmatch(r"[A-Z_]+=.*", word), words))


def spans_of(page: str) -> list[list[str]]:
    """The words of each command that stands inside a sentence."""
    return [shlex.split(span)[1:] for span in _SPAN.findall(page) if not _SYNOPSIS.search(span)]


def script_of(block: Block) -> str:
    """What is typed, without prompts and shown output."""
    return _without_prompts(block) if block.language == "console" else block.text


def pages_in(root: Path) -> list[Path]:
    """Every page whose commands a reader may try."""
    others = ("README.md", "CONTRIBUTING.md", "orchestrator/templates/README.md")
    return [*(root / name for name in others), *sorted((root / "docs").rglob("*.md"))]


def _without_prompts(block: Block) -> str:
    typed = [line[2:] for line in block.text.splitlines() if line.startswith(("$ ", "> "))]
    return "\n".join(typed) + "\n"


def _logical_lines(text: str) -> Iterator[str]:
    """Lines as a shell reads them: a quotation or a backslash goes on in the next."""
    line = ""
    for part in text.splitlines():
        line += part
        if line.endswith("\\"):
            line = line[:-1]
            continue
        try:
            shlex.split(line, comments=True)
        except ValueError:
            line += "\n"
            continue
        yield line
        line = ""
    if line:
        raise ValueError(f"a quotation has no end: {line}")


def _simple_commands(line: str) -> Iterator[list[str]]:
    """The commands of a line, without what joins and redirects them."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    is_target = False
    for word in lexer:
        if set(word) <= set("();|&"):
            yield words
            words = []
        elif set(word) <= set("<>&"):
            is_target = True
        elif is_target:
            is_target = False
        else:
            words.append(word)
    yield words
