"""What commands that run a sweep share: how they show progress, and what they print at the end."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from fleetrank.orchestrator.cli.context import current
from fleetrank.orchestrator.progress.events import Subscriber

if TYPE_CHECKING:
    from fleetrank.orchestrator.sweep.sweep_outcome import SweepOutcome
    from fleetrank.orchestrator.sweep.sweep_session import RunOptions

EXIT_FAILED_CELLS, EXIT_INTERRUPTED = 3, 130


class Progress(StrEnum):
    """How a running sweep shows its progress."""

    AUTO = "auto"
    PLAIN = "plain"
    JSONL = "jsonl"
    NONE = "none"


Inline = Annotated[
    bool, typer.Option("--inline", help="Run in this process without Ray; for debugging.")
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


@contextmanager
def shown_progress(progress: Progress) -> Iterator[list[Subscriber]]:
    """The event subscribers of a progress style; restores the terminal at the end."""
    from fleetrank.orchestrator.cli.output.terminal import VisibleConsole
    from fleetrank.orchestrator.progress.displays import JsonLines, LiveConsole, PlainLines

    if progress is Progress.NONE:
        yield []
    elif progress is Progress.JSONL:
        yield [JsonLines(sys.stdout)]
    elif progress is Progress.AUTO and sys.stdout.isatty():
        live = LiveConsole(VisibleConsole())
        try:
            yield [live]
        finally:
            live.close()
    else:
        yield [PlainLines(sys.stdout)]


def result_stream(progress: Progress) -> TextIO:
    """Where the result is printed: with JSON progress, standard output holds only JSON lines."""
    return sys.stderr if progress is Progress.JSONL else sys.stdout


def conclude(outcome: "SweepOutcome", options: "RunOptions", stream: TextIO | None) -> None:
    """Prints the results folder and the next commands, and exits with the exit code.

    Args:
        outcome: of the sweep.
        options: of this run; the command that continues the sweep repeats them.
        stream: `None` prints nothing, because the command has printed its result as JSON.
    """
    if stream is not None:
        store_folder = current().workspace.results / f"measurements/sweep_id={outcome.sweep_id}"
        print(f"results: {store_folder}", file=stream)
        for line in _next_steps(outcome, options):
            print(line, file=stream)
    if outcome.is_interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    if outcome.n_missing:
        raise typer.Exit(EXIT_FAILED_CELLS)


def _next_steps(outcome: "SweepOutcome", options: "RunOptions") -> Iterator[str]:
    sweep_id = outcome.sweep_id
    # Without this option the report excludes simulated rows.
    unreal = ["--include-simulated"] if outcome.is_unreal else []
    report = fleetrank_command("report", "build", *unreal)
    if not outcome.n_missing:
        yield f"next:    {report}"
        return
    yield f"details: {fleetrank_command('sweep', 'status', sweep_id)}"
    if outcome.is_interrupted:
        retry = ["--retry-failed"] if options.retries_failed else []
        chosen = [*retry, *_only_of(options), *_options_of(options)]
        yield f"go on:   {fleetrank_command('sweep', 'resume', sweep_id, *chosen)}"
        return
    chosen = [*(["--retry-failed"] if outcome.n_failed else []), *_options_of(options)]
    yield f"next:    {fleetrank_command('sweep', 'resume', sweep_id, *chosen)}"
    if outcome.n_ok:
        yield f"report:  {report}"


def fleetrank_command(*words: str) -> str:
    """A command line for the same workspace, to be copied into a shell."""
    root = current().given_root
    place = [] if root is None else ["--workspace", str(root)]
    return shlex.join(["fleetrank", *words, *place])


def _only_of(options: "RunOptions") -> list[str]:
    return [] if options.restricted_to is None else ["--only", options.restricted_to]


def _options_of(options: "RunOptions") -> list[str]:
    """The options that the next run of the sweep needs too."""
    return [
        *(["--inline"] if options.is_inline else []),
        *(["--cluster", options.cluster] if options.cluster is not None else []),
        *(["--trust"] if options.is_trusted else []),
    ]
