"""What the columns of a table mean: `explanations.toml` has one text for each part of a table."""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

_SHARED = "shared"
_NAME = re.compile(r"\{(\w+)\}")
_NOTHING: Mapping[str, object] = MappingProxyType({})


def explained(part: str, values: Mapping[str, object] = _NOTHING) -> tuple[str, ...]:
    """The paragraphs about a part of a table, in order; one that is empty is left out.

    Args:
        part: its name in the file, such as `strategies/crossover`.
        values: what stands for a `{name}`, beside the shared texts.
    """
    texts = _texts()
    known = texts[_SHARED] | {
        name: f"{one:g}" if isinstance(one, float) else str(one) for name, one in values.items()
    }
    table, _, inner = part.partition("/")
    paragraphs = texts[table][inner or table].split("\n\n")
    return tuple(text for one in paragraphs if (text := _filled(one, known)))


def parts_of(table: str) -> Mapping[str, tuple[str, ...]]:
    """What each part of a table is explained with; a value that the rows give is its name."""
    return {
        part: explained(f"{table}/{part}", _names_in(text))
        for part, text in _texts().get(table, {}).items()
    }


def _names_in(text: str) -> Mapping[str, str]:
    shared = _texts()[_SHARED]
    found: dict[str, str] = {}
    for name in _NAME.findall(text):
        found |= _names_in(shared[name]) if name in shared else {name: f"`{name}`"}
    return found


def _filled(paragraph: str, known: Mapping[str, str]) -> str:
    text = " ".join(paragraph.split())
    while _NAME.search(text):
        text = _NAME.sub(lambda found: " ".join(known[found[1]].split()), text)
    return text


@cache
def _texts() -> Mapping[str, dict[str, str]]:
    return tomllib.loads(Path(__file__).with_name("explanations.toml").read_text(encoding="utf-8"))
