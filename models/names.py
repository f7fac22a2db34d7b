"""Finding what somebody probably meant."""

import difflib
from collections.abc import Iterable

_LONGEST = 100
"""Letters that are compared: the time grows with their square."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`; `None` when none is alike."""
    matches = difflib.get_close_matches(name[:_LONGEST].lower(), list(known), n=1, cutoff=0.5)
    return matches[0] if matches else None
