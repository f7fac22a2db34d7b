"""Messages name choices; only the command line writes them as options."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("analysis", "device_agents", "models", "orchestrator")
PRINTS = (
    "orchestrator/cli/",
    # Commands that the user copies into another terminal.
    "device_agents/android/phone_registration.py",
    # Below a table on a terminal, and never in a message.
    "analysis/tables/formats.py",
)
"""What writes for a terminal only."""
OF_OTHERS = re.compile(r"`(?:ray|ssh) [^`]*`?|pip install [^`]*|adb [^`]*|settings --user 0")
"""Commands of other programs have their own options."""
OPTION = re.compile(r"(?:^|[\s`(])--[a-z][a-z-]+")


def _sentences(path: Path) -> Iterator[tuple[int, str]]:
    """Texts with a space, other than docstrings: the rest are words of a command."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inside = {
        id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
        for part in node.values
    }  # fmt: skip
    for node in ast.walk(tree):
        if id(node) in docstrings or id(node) in inside:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values
            )
        else:
            continue
        if " " in text.strip():
            yield node.lineno, text


def _found() -> Iterator[str]:
    for path in sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py")):
        place = path.relative_to(ROOT).as_posix()
        if not place.startswith(PRINTS):
            for line, text in _sentences(path):
                if OPTION.search(OF_OTHERS.sub("", text)):
                    yield f"{place}:{line}: {text}"


def test_no_message_names_an_option_of_the_command_line() -> None:
    # Write `name=value`: with_flags makes it an option on a terminal.
    assert list(_found()) == []


def test_an_option_in_a_sentence_is_found(tmp_path: Path) -> None:
    path = tmp_path / "some.py"
    path.write_text(
        '"""A docstring with --trust."""\nX = E("with --trust")\n'
        'raise E(f"{x} is bad", "or --trust it")\n'
        'argv = ["--trust", f"--name={x}"]\nother = "run `ray start --address X`"\n'
    )
    texts = [text for _line, text in _sentences(path)]
    hits = [text for text in texts if OPTION.search(OF_OTHERS.sub("", text))]
    assert hits == ["with --trust", "or --trust it"]
