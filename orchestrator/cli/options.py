"""Options that several commands share: a group stands for one parameter of the command."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, get_args, get_type_hints

import typer

from fleetrank.foundation.formats import known_runtime
from fleetrank.foundation.user_file import Key
from fleetrank.foundation.vocabulary import Runtime, TableForm, words_of
from fleetrank.foundation.workload import Workload
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.workspace.user_shares import share_of

Command = Callable[..., None]


def runtime_named(text: str) -> Runtime:
    """The runtime that an option names, of fleetrank or of another package.

    Raises:
        UsageError: no runtime has this name.
    """
    try:
        return known_runtime(text)
    except ValueError as error:
        raise UsageError(str(error), "give one of these, or install its package") from error


def runtime_option(text: str) -> Any:
    """An option `--runtime`; it may be repeated if its type is a list."""
    return typer.Option(
        "--runtime",
        parser=runtime_named,
        metavar=f"<{'|'.join(Runtime)}|...>",
        autocompletion=lambda: list(words_of(Runtime)),
        help=text,
    )


def with_options(
    parameter: str, options: Sequence[inspect.Parameter], build: Callable[..., object]
) -> Callable[[Command], Command]:
    """Gives a command these options in place of one parameter.

    Args:
        parameter: of the command.
        options: in the order of the help.
        build: makes the value of the parameter from the values of the options, by their names.
    """

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command)
        parameters: list[inspect.Parameter] = []
        for name, one in signature.parameters.items():
            parameters += options if name == parameter else [one]

        @functools.wraps(command)
        def run(**given: object) -> None:
            values = {option.name: given.pop(option.name) for option in options}
            command(**given, **{parameter: build(**values)})

        # Typer reads the options from both.
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


def option(name: str, kind: object, default: object, info: object) -> inspect.Parameter:
    """An option as a parameter of a command; `info` is Typer's."""
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]
    )


def with_keys(cls: type) -> Callable[[Command], Command]:
    """Gives a command an option for each key of a dataclass, in place of its parameter `keys`.

    The note `Key` of a field has the text of the option; the command gets a value of the class.
    """
    hints = get_type_hints(cls, include_extras=True)
    options = [_option_of(one, *get_args(hints[one.name])) for one in dataclasses.fields(cls)]
    return with_options("keys", options, cls)


def _option_of(field: "dataclasses.Field[object]", kind: object, key: Key) -> inspect.Parameter:
    is_needed = field.default is dataclasses.MISSING
    info = typer.Option(f"--{field.name.replace('_', '-')}", help=key.text, min=key.ge)
    return option(field.name, kind, inspect.Parameter.empty if is_needed else field.default, info)


def _read(text: str) -> Workload:
    try:
        return Workload.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


WorkloadsOption = Annotated[
    list[Workload] | None,
    typer.Option(
        "--workload",
        parser=_read,
        metavar="WORKLOAD",
        help="Of language models, such as decode@512; may be repeated.",
    ),
]


def share(given: str | float) -> float:
    """A share given as `5%` or `0.05`."""
    text = str(given).strip()
    try:
        return share_of(text)
    except ValueError as error:
        raise typer.BadParameter(f"'{text}' is not a share such as 5% or 0.05") from error


AsForm = Annotated[TableForm, typer.Option("--format", help="Output format.")]
