"""Words in messages: counts with their noun, and the name that a user probably meant."""

from collections.abc import Iterable

_LONGEST = 100
"""Maximum letters to compare, because the time grows with their square."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most similar to `name`; `None` if no name is similar."""
    import difflib  # not earlier: the measuring worker imports this module and never needs it

    matches = difflib.get_close_matches(name[:_LONGEST].lower(), list(known), n=1, cutoff=0.5)
    return matches[0] if matches else None


def count_of(n: int, noun: str, plural: str | None = None) -> str:
    """`1 model`, `2 models`."""
    return f"{n} {noun}" if n == 1 else f"{n} {plural or noun + 's'}"
