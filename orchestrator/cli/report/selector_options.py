"""The selectors as options of commands, made from `orchestrator.workspace.selectors`."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated

import typer

from fleetrank.orchestrator.workspace.selectors import (
    SelectorField,
    SelectorKind,
    Selectors,
    selector_fields,
)

Command = Callable[..., None]
_PARAMETER = "selectors"


def with_selectors(*names: str) -> Callable[[Command], Command]:
    """Gives a command one option per selector in place of its parameter `selectors`.

    Args:
        names: the selectors that the command has; all, if no name is given.
    """

    def decorate(command: Command) -> Command:
        fields = {field.name: field for field in selector_fields()}
        options = [_option(fields[name]) for name in names or fields]
        signature = inspect.signature(command)
        parameters: list[inspect.Parameter] = []
        for name, parameter in signature.parameters.items():
            parameters += options if name == _PARAMETER else [parameter]

        @functools.wraps(command)
        def run(**given: object) -> None:
            values = {option.name: given.pop(option.name) for option in options}
            known = {name: value for name, value in values.items() if value is not None}
            command(**given, selectors=Selectors.model_validate(known))

        # Typer reads the options from both.
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


def _option(field: SelectorField) -> inspect.Parameter:
    """One option; its name is the one of the API, with hyphens."""
    flag, text = f"--{field.name.replace('_', '-')}", field.description
    kind: object = str | None
    option, default = typer.Option(flag, help=text), field.default
    if field.kind is SelectorKind.BOOLEAN:
        kind = bool
    elif field.kind is SelectorKind.INTEGER:
        kind = int
        option = typer.Option(flag, min=field.minimum, max=field.maximum, help=text)
    elif field.kind is SelectorKind.ARRAY:
        kind, default = list[str] | None, None
        option = typer.Option(flag, metavar="NAME=VALUE", help=text)
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, option],
    )
