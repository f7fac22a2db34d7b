"""The settings of tables that take words, as options of `report show`."""

import inspect
from collections import defaultdict
from collections.abc import Mapping
from typing import Annotated

import typer

from fleetrank.analysis.tables.table_settings import Setting
from fleetrank.analysis.tables.tables import TABLES


def setting_options() -> list[inspect.Parameter]:
    """One option for each name; tables can have different words under one name."""
    owners: dict[str, dict[str, Setting]] = defaultdict(dict)
    for table, spec in TABLES.items():
        for one in spec.settings:
            if one.words:
                owners[one.name][table] = one
    return [_option(name, tables) for name, tables in owners.items()]


def _option(name: str, tables: Mapping[str, Setting]) -> inspect.Parameter:
    is_many = any(one.is_many for one in tables.values())
    text = " ".join(f"Table {table}: {_help(one)}." for table, one in tables.items())
    option = typer.Option(f"--{name}", metavar="WORD", help=text)
    kind: object = list[str] | None if is_many else str | None
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option]
    )


def _help(one: Setting) -> str:
    words = ", ".join(f"{word} (default)" if word == one.default else word for word in one.words)
    return f"{one.meaning}: {words}{'; may be repeated' if one.is_many else ''}"


def as_set(words: Mapping[str, object]) -> list[str]:
    """The given options as `--set` has them; several words are joined by commas."""
    return [
        f"{name}={','.join(word) if isinstance(word, list) else word}"
        for name, word in words.items()
        if word is not None
    ]
