"""The options of a command that selects rows: one for each selector, and for settings of tables."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, cast

import typer

from fleetrank.orchestrator.cli.report.setting_options import as_set, setting_options
from fleetrank.orchestrator.workspace.name_list import read_names
from fleetrank.orchestrator.workspace.selectors import (
    SelectorField,
    SelectorKind,
    Selectors,
    TableFormat,
    selector_fields,
)

Form = Annotated[TableFormat, typer.Option("--format", help="Output format.")]
JsonForm = Annotated[bool, typer.Option("--json", help="Same as --format json.")]
Explain = Annotated[
    bool, typer.Option("--explain", help="Also explain the columns and how they are computed.")
]

Command = Callable[..., None]
_PARAMETER = "selectors"
_MODELS_FILE = "models_file"


def with_selectors(*names: str, has_settings: bool = False) -> Callable[[Command], Command]:
    """Gives a command one option per selector in place of its parameter `selectors`.

    Args:
        names: the selectors that the command has; all, if no name is given.
        has_settings: also one option for each setting of a table that takes words.
    """

    def decorate(command: Command) -> Command:
        fields = {field.name: field for field in selector_fields()}
        options = [one for name in names or fields for one in _options(fields[name])]
        settings = setting_options() if has_settings else []
        signature = inspect.signature(command)
        parameters: list[inspect.Parameter] = []
        for name, parameter in signature.parameters.items():
            parameters += [*options, *settings] if name == _PARAMETER else [parameter]

        @functools.wraps(command)
        def run(**given: object) -> None:
            values = {option.name: given.pop(option.name) for option in options}
            if isinstance(path := values.pop(_MODELS_FILE, None), Path):
                named = values["model"]
                values["model"] = [*(named if isinstance(named, list) else ()), *read_names(path)]
            known = {name: value for name, value in values.items() if value is not None}
            words = as_set({one.name: given.pop(one.name) for one in settings})
            if words:
                known["set"] = [*cast("list[str]", known.get("set", [])), *words]
            command(**given, selectors=Selectors.model_validate(known))

        # Typer reads the options from both.
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


def _options(field: SelectorField) -> list[inspect.Parameter]:
    """The options of one selector."""
    return [_option(field), *([_models_file()] if field.name == "model" else [])]


def _models_file() -> inspect.Parameter:
    """A file of names, which only the command line reads: the server must not open files."""
    text = "File of models or patterns, one a line; # starts a comment. Adds to --model."
    option = typer.Option("--models-file", help=text)
    return inspect.Parameter(
        _MODELS_FILE,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[Path | None, option],
    )


def _option(field: SelectorField) -> inspect.Parameter:
    """One option; its name is the one of the API, with hyphens."""
    flag, text = f"--{field.name.replace('_', '-')}", field.description
    kind: object = str | None
    option, default = typer.Option(flag, help=text), field.default
    if field.kind is SelectorKind.BOOLEAN:
        kind = bool
    elif field.kind is SelectorKind.INTEGER:
        kind = int if default is not None else int | None
        option = typer.Option(flag, min=field.minimum, max=field.maximum, help=text)
    elif field.kind is SelectorKind.ARRAY:
        kind, default = list[str] | None, None
        metavar = "NAME=VALUE" if field.name == "set" else None
        option = typer.Option(flag, metavar=metavar, help=text)
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, option],
    )
