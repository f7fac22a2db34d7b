"""How people read platforms: by the parts in which the listed ones differ.

What all of them share stands once in a heading. The full key is for CSV, JSON and selections.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from fleetrank.foundation.wording import count_of

PARTS = (
    "device", "runtime", "backend", "mode", "precision", "batch", "threads", "affinity", "options",
    "axes",
)  # fmt: skip
"""Of a platform's key, in its order."""
KEY = re.compile(
    r"(?<![\w.-])([\w.-]+)/([^/\s]+)/([^/\s]+)/([^/\s]+)/([^/\s]+)/b([^/\s]+)/t([^/\s]+)"
    r"/a([^/\s]+)/(\{.{,2000}?\}|\?)(?:/(\w+=[\w.-]+(?:,\w+=[\w.-]+)*))?(?![\w/])"
)
"""A platform's key in a text; a group is one of `PARTS`. It begins where a word does, and options
have an end, so that no text is read again and again."""
_FOLLOWS = {"backend": "runtime", "affinity": "threads"}
"""Parts left out if another part implies them: the usual delegate, the first cores."""
_USUAL = {
    "mode": ("eager",), "batch": ("1",), "threads": ("?",), "affinity": ("free",),
    "options": ("{}", "?"),
    "precision": ("any",),
}  # fmt: skip
"""Values that a name leaves out unless nothing else is left of it."""
_UNSAID = _USUAL | {"backend": ("cpu",), "affinity": ("free", "first_cores")}
"""Values that are not said of all platforms, nor of a single one."""


def short_commits(text: pl.Expr) -> pl.Expr:
    """A text with twelve digits of each commit: they identify it in every repository in use."""
    return text.str.replace_all(r"\b([0-9a-f]{12})[0-9a-f]{28}\b", "$1")


@dataclass(frozen=True, slots=True)
class Labels:
    """The names of some platforms.

    Attributes:
        names: key to name, in the order given.
        common: what all of them share, for a heading; empty if there is nothing to say.
    """

    names: Mapping[str, str]
    common: str = ""

    def said(self, text: str) -> str:
        """A text with names in place of keys."""
        return KEY.sub(lambda found: self.names.get(found[0], found[0]), text)


def labels_of(keys: Iterable[str], devices: Mapping[str, str] | None = None) -> Labels:
    """Names for platforms that stand in one list.

    Args:
        keys: of the platforms; another text is its own name.
        devices: other names of devices, such as the published ones; `None` for none.
    """
    keys = list(dict.fromkeys(keys))
    found = {key: parts for key in keys if (parts := _parts(key, devices or {}))}
    rows = list(found.values())
    differing = [name for name in PARTS if _differs(rows, name)]
    shown = differing or PARTS
    names = {
        key: _text(found[key], shown, _USUAL if differing else _UNSAID) if key in found else key
        for key in keys
    }
    if len(set(names.values())) < len(names):
        return Labels({key: key for key in keys})
    shared = (
        {
            name: text
            for name, text in rows[0].items()
            if text not in _UNSAID.get(name, ()) and all(row[name] == text for row in rows)
        }
        if differing
        else {}
    )
    return Labels(names, _text(shared, shared, {}) if len(found) == len(keys) else "")


def keys_in(texts: Iterable[str]) -> list[str]:
    """The platforms that texts name, each once."""
    return list(dict.fromkeys(found[0] for text in texts for found in KEY.finditer(text)))


def published_names(rows: pl.LazyFrame) -> dict[str, str]:
    """Device to the name of its model as published; imported devices without a twin only."""
    names = ("device", "device_model", "origin")
    if not set(names) <= set(rows.collect_schema().names()):
        return {}
    devices = rows.select(names).unique().collect()
    is_only = pl.col("device").n_unique().over("device_model") == 1
    named = devices.filter(
        is_only & (pl.col("origin") == "imported") & pl.col("device_model").is_not_null()
    )
    return dict(named.select("device", "device_model").iter_rows())


def _parts(key: str, devices: Mapping[str, str]) -> dict[str, str]:
    found = KEY.fullmatch(key)
    if found is None:
        return {}
    parts = dict(zip(PARTS, (text or "" for text in found.groups()), strict=True))
    return parts | {"device": devices.get(parts["device"], parts["device"])}


def _differs(rows: Sequence[Mapping[str, str]], name: str) -> bool:
    owner = _FOLLOWS.get(name, name)
    n_owners = len({row[owner] for row in rows}) if owner != name else 1
    return len({(row[owner], row[name]) for row in rows}) > n_owners


def _text(
    parts: Mapping[str, str], names: Iterable[str], usual: Mapping[str, tuple[str, ...]]
) -> str:
    """The parts as people read them; usual values only where nothing else is left."""
    chosen = [name for name in names if parts[name]]
    unusual = [name for name in chosen if parts[name] not in usual.get(name, ())]
    return ", ".join(_part(name, parts[name]) for name in unusual or chosen)


def _part(name: str, text: str) -> str:
    if name == "threads":
        return count_of(int(text), "thread") if text.isdecimal() else f"{text} threads"
    if name == "batch":
        return f"batch {text}"
    if name == "affinity":
        usual = {"first_cores": "first cores", "free": "any cores"}
        return usual.get(text, f"CPUs {text}")
    return _options(text) if name == "options" else text


def _options(text: str) -> str:
    """`{"amp":true,"path":"dlc"}` as `amp, path=dlc`."""
    try:
        options = json.loads(text)
    except ValueError:
        return text
    named = (name if value is True else f"{name}={value}" for name, value in options.items())
    return ", ".join(named) or "no options"
