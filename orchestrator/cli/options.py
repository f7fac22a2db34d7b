"""Options that several commands share: a group stands for one parameter of the command."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer
from pydantic import ValidationError

from fleetrank.analysis.tables.tables import Setting
from fleetrank.foundation.formats import known_runtime
from fleetrank.foundation.inputs import Workload
from fleetrank.foundation.user_file import Key
from fleetrank.foundation.vocabulary import Runtime, TableForm, words_of
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.workspace.selectors import (
    SelectorField,
    SelectorKind,
    Selectors,
    selector_fields,
)
from fleetrank.orchestrator.workspace.user_shares import share_of

if TYPE_CHECKING:
    from fleetrank.orchestrator.progress import Subscriber
    from fleetrank.orchestrator.sweep.sweep_session import RunOptions

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


# Values of options that several commands read.


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


# The options of a command that selects rows: one for each selector.

AsForm = Annotated[TableForm, typer.Option("--format", help="Output format.")]
JsonForm = Annotated[bool, typer.Option("--json", help="Same as --format json.")]
Explain = Annotated[
    bool, typer.Option("--explain", help="Also explain the columns and how they are computed.")
]

_MODELS_FILE = "models_file"


def with_selectors(
    *names: str, settings: Mapping[str, Setting] = MappingProxyType({})
) -> Callable[[Command], Command]:
    """Gives a command one option per selector in place of its parameter `selectors`.

    Args:
        names: the selectors that the command has; all, if no name is given.
        settings: of a table; each is an option too.
    """
    fields = {field.name: field for field in selector_fields()}
    options = [_option(fields[name]) for name in names or fields]
    if "model" in {one.name for one in options}:
        # Only the command line reads a file of names: the server must not open files.
        text = "File of models or patterns, one a line; # starts a comment. Adds to --model."
        info = typer.Option("--models-file", help=text)
        options.append(option(_MODELS_FILE, Path | None, None, info))

    def build(**values: object) -> Selectors:
        given = {name: values.pop(name) for name in settings}
        if isinstance(path := values.pop(_MODELS_FILE, None), Path):
            from fleetrank.orchestrator.workspace.device_registry import read_names

            named = values["model"]
            values["model"] = [*(named if isinstance(named, list) else ()), *read_names(path)]
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
        f"--{one.name.replace('_', '-')}", metavar="WORD" if words else "VALUE", help=text
    )
    return option(one.name, list[str] | None if one.is_many else str | None, None, info)


# The options of a command that runs a sweep.


class Progress(StrEnum):
    """How a running sweep shows its progress."""

    AUTO = "auto"
    PLAIN = "plain"
    JSONL = "jsonl"
    NONE = "none"


Inline = Annotated[
    bool,
    typer.Option("--inline", help="Run in this process without Ray, as `run` and `ab` always do."),
]
Cluster = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Run on this Ray cluster: IP:PORT of its head, or auto."),
]
Trust = Annotated[
    bool, typer.Option("--trust", help="Allow model-supplied code to run. Review it first.")
]
Display = Annotated[
    Progress,
    typer.Option(
        help="auto: live table on a terminal, plain lines in a pipe. none: only the result."
    ),
]


Tags = Annotated[
    list[str] | None, typer.Option("--tag", help="Tag of this sweep; may be repeated.")
]
Note = Annotated[str | None, typer.Option("--note", help="Note about this sweep, one line.")]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """The options of every command that runs a sweep."""

    inline: Inline = False
    cluster: Cluster = None
    trust: Trust = False
    progress: Display = Progress.AUTO

    def run_options(
        self, subscribers: "Sequence[Subscriber]", *, is_inline: bool = False
    ) -> "RunOptions":
        """How to run; `is_inline` is the command's own choice."""
        from fleetrank.orchestrator.sweep.sweep_session import RunOptions

        return RunOptions(
            is_inline=self.inline or is_inline,
            cluster=self.cluster,
            is_trusted=self.trust,
            subscribers=subscribers,
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NewSweepOptions(SweepOptions):
    """The options of a command that starts a sweep."""

    tag: Tags = None
    note: Note = None

    def run_options(
        self, subscribers: "Sequence[Subscriber]", *, is_inline: bool = False
    ) -> "RunOptions":
        """How to run, with the tags."""
        from fleetrank.orchestrator.store.results import new_tags

        options = SweepOptions.run_options(self, subscribers, is_inline=is_inline)
        return dataclasses.replace(options, tags=new_tags(self.tag, self.note))


def with_sweep_options(kind: type[SweepOptions]) -> Callable[[Command], Command]:
    """Gives a command the options of a class in place of its parameter `options`."""
    hints = get_type_hints(kind, include_extras=True)
    added = [
        inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=one.default,
            annotation=hints[one.name],
        )
        for one in dataclasses.fields(kind)
    ]
    return with_options("options", added, kind)
