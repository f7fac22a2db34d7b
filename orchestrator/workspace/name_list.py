"""A user's file of names or patterns, such as the models of a selection."""

import re
from pathlib import Path

from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.small_file import read_small_text
from fleetrank.foundation.visible_text import shortened, visible_line
from fleetrank.orchestrator.workspace.selectors import MAX_NAMES, MAX_TEXT

_COMMENT = re.compile(r"(?:^|\s)#")


def read_names(path: Path) -> tuple[str, ...]:
    """The names, one a line. Empty lines are left out; `#` after a space or first is a comment.

    Raises:
        MissingFileError: the file does not exist.
        BadFileError: it is not a regular text file of at most 1 MB, holds no name or more than
            `MAX_NAMES`, or a line is not a name; the message gives the line's number.
    """
    lines = read_small_text(path).replace("\r\n", "\n").split("\n")
    names = [name for number, line in enumerate(lines, 1) if (name := _name(path, number, line))]
    if not names:
        raise BadFileError(f"{path} holds no name", "write one name or pattern a line")
    if len(names) > MAX_NAMES:
        raise BadFileError(
            f"{path} holds {len(names):,} names", f"name at most {MAX_NAMES:,}, or use patterns"
        )
    return tuple(names)


def _name(path: Path, number: int, line: str) -> str:
    name = _COMMENT.split(line, maxsplit=1)[0].strip()
    if visible_line(name) != name:
        raise BadFileError(
            f"{path}, line {number}: '{shortened(visible_line(name))}' has a character that cannot "
            "be shown",
            "write one name or pattern a line, as plain text",
        )
    if len(name) > MAX_TEXT:
        raise BadFileError(
            f"{path}, line {number} has {len(name):,} characters",
            f"names and patterns have at most {MAX_TEXT} characters",
        )
    return name
