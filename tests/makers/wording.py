"""Asserts what a message says without its sentence: the figures, and the words that name things."""

import re
from collections.abc import Iterable


def has(said: str | Iterable[str], *parts: str) -> bool:
    """Whether the text, or one of several, has all parts in this order, each as a whole word.

    `1` is not in `10`, nor in `1.5`.
    """
    texts = [said] if isinstance(said, str) else said
    pattern = ".*?".join(rf"(?<!\w)(?<!\d\.){re.escape(part)}(?!\w|\.\d)" for part in parts)
    return any(re.search(pattern, str(text), re.DOTALL) for text in texts)
