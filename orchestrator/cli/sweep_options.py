"""The options of a command that runs a sweep."""

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, get_type_hints

import typer

from fleetrank.orchestrator.cli.options import Command, with_options

if TYPE_CHECKING:
    from fleetrank.orchestrator.progress import Subscriber
    from fleetrank.orchestrator.sweep.sweep_session import RunOptions


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
        from fleetrank.orchestrator.store.tagging import new_tags

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
