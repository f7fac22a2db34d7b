"""Refuses words that readers stumble over, in code, messages and pages: `make check` runs it.

Each word has a plain one beside it. An exception is a line that needs the word, with its reason.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("analysis", "device_agents", "foundation", "models", "orchestrator", "docs")
FETCHED = "libraries"
"""A folder of other projects' files, which are not committed."""
SUFFIXES = {".py", ".j2", ".js", ".toml", ".md", ".yaml"}
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "Makefile", "mkdocs.yml")
"""Files beside the folders. CHANGELOG.md is left out: what was released under a word keeps it."""
PLAIN = {
    "told": "given, reported, shown",
    "tells": "says, shows, reports",
    "anew": "again",
    "whoever": "the one who, the caller, the user",
    "nobody": "no one, no user, no process",
    "somebody": "a user, another process",
    "mend": "fix",
    "mended": "fixed",
    "foretold": "predicted",
    "is no": "is not a, there is not",
    "none of": "no",
    "hangs on": "is attached to",
    "of its own": "its own, separate",
}
"""A banned word and what to write instead."""
EXCEPTIONS: dict[str, str] = {"cannot be told": "the third verdict of a claim, beside holds"}
"""Part of a line that may have the word, and why."""

_BANNED = re.compile(rf"\b({'|'.join(PLAIN)})\b", re.IGNORECASE)


def findings(text: str) -> list[tuple[int, str]]:
    """Line numbers, from 1, and the banned words in them."""
    return [
        (number, found.group(1).lower())
        for number, line in enumerate(text.splitlines(), start=1)
        if not any(part in line for part in EXCEPTIONS)
        for found in _BANNED.finditer(line)
    ]


def files() -> list[Path]:
    """Every file that is checked. This one is not: it has the list."""
    inside = (path for name in FOLDERS for path in sorted((ROOT / name).rglob("*")))
    others = (path for path in inside if path != Path(__file__) and FETCHED not in path.parts)
    found = [path for path in others if path.suffix in SUFFIXES]
    return [*found, *(ROOT / name for name in PAGES)]


def main() -> int:
    """Prints every banned word with its place and a plain one; returns 1 if there is any."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: '{word}': write {PLAIN[word]}"
        for path in files()
        for number, word in findings(path.read_text(encoding="utf-8"))
    ]
    sys.stdout.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
