"""The words that tables and page use, with their meaning; a part of docs/glossary.md."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

_FILE = tomllib.loads(Path(__file__).with_name("glossary.toml").read_text(encoding="utf-8"))
TERMS: Mapping[str, str] = MappingProxyType(_FILE["terms"])
"""In the order of docs/glossary.md."""


def meaning_of_column(name: str) -> str | None:
    """What the word in a column's heading means; `None` if the glossary does not have it."""
    meaning = TERMS.get(_FILE["columns"].get(name, name))
    return None if meaning is None else meaning.replace("`", "")
