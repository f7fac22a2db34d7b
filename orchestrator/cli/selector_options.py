"""The options of a command that selects rows: one for each selector."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import typer
from pydantic import ValidationError

from fleetrank.analysis.tables.tables import Setting
from fleetrank.orchestrator.cli.options import Command, option, with_options
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.workspace.selectors import (
    SelectorField,
    SelectorKind,
    Selectors,
    selector_fields,
)

JsonForm = Annotated[bool, typer.Option("--json", help="Same as --format json.")]
Explain = Annotated[
    bool, typer.Option("--explain", help="Also explain the columns and how they are computed.")
]
_MODELS_FILE, _WORDS = "models_file", "named_models"


def with_selectors(
    *names: str,
    settings: Mapping[str, Setting] = MappingProxyType({}),
    takes_models: bool = False,
) -> Callable[[Command], Command]:
    """Gives a command one option per selector in place of its parameter `selectors`.

    Args:
        names: the selectors that the command has; all, if no name is given.
        settings: of a table; each is an option too.
        takes_models: words without an option are models.
    """
    fields = {field.name: field for field in selector_fields()}
    options = [_option(fields[name]) for name in names or fields]
    if "model" in {one.name for one in options}:
        # Only the command line reads a file of names: the server must not open files.
        text = "File of models or patterns, one a line; # starts a comment. Adds to --model."
        info = typer.Option("--models-file", help=text)
        options.append(option(_MODELS_FILE, Path | None, None, info))
    if takes_models:
        word = typer.Argument(metavar="MODEL", help="As --model.", show_default=False)
        options.append(option(_WORDS, list[str] | None, None, word))

    def build(**values: object) -> Selectors:
        given = {name: values.pop(name) for name in settings}
        # Only the command line reads it, as a file of names.
        for name, path in given.items():
            if settings[name].file and isinstance(path, str):
                given[name] = settings[name].text_of_file(Path(path))
        if isinstance(path := values.pop(_MODELS_FILE, None), Path):
            from fleetrank.orchestrator.workspace.name_list import read_names

            values["model"] = [*_listed(values["model"]), *read_names(path)]
        if words := values.pop(_WORDS, None):
            values["model"] = [*_listed(values["model"]), *_listed(words)]
        known = {name: value for name, value in values.items() if value is not None}
        known["set"] = [
            f"{name}={','.join(word) if isinstance(word, list) else word}"
            for name, word in given.items()
            if word is not None
        ]
        try:
            return Selectors.model_validate(known)
        except ValidationError as error:  # a number above the limit, which no help shows
            first = error.errors()[0]
            if first["type"] != "less_than_equal":
                raise
            flag = f"--{first['loc'][0]}".replace("_", "-")
            raise UsageError(f"{flag}: {first['msg']}", "give a smaller number") from error

    return with_options("selectors", [*map(_setting_option, settings.values()), *options], build)


def _listed(given: object) -> list[object]:
    return given if isinstance(given, list) else []


def _option(field: SelectorField) -> inspect.Parameter:
    """One option; its name is the one of the API, with hyphens."""
    flag, text = f"--{field.name.replace('_', '-')}", field.description
    kind: object = str | None
    info, default = typer.Option(flag, help=text), field.default
    if field.kind is SelectorKind.BOOLEAN:
        kind = bool
    elif field.kind is SelectorKind.INTEGER:
        kind = int if default is not None else int | None
        info = typer.Option(flag, min=field.minimum, help=text)
    elif field.kind is SelectorKind.ARRAY:
        kind, default = list[str] | None, None
    return option(field.name, kind, default, info)


def _setting_option(one: Setting) -> inspect.Parameter:
    words = ", ".join(f"{word} (default)" if word == one.default else word for word in one.words)
    scope = f" Part {' and '.join(one.parts)}." if one.parts else ""
    text = f"{one.meaning[:1].upper()}{one.meaning[1:]}{f': {words}' if words else ''}.{scope}"
    info = typer.Option(
        f"--{one.name.replace('_', '-')}",
        metavar="FILE" if one.file else "WORD" if words else "VALUE",
        help=text,
    )
    return option(one.name, list[str] | None if one.is_many else str | None, None, info)
