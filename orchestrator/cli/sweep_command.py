"""`fleetrank sweep`: plan, run, watch and resume sweeps."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetrank.foundation.strict_json import json_text
from fleetrank.foundation.wording import count_of
from fleetrank.orchestrator.cli.context import current
from fleetrank.orchestrator.cli.output.listing import AsJson, print_table
from fleetrank.orchestrator.progress.events import Subscriber
from fleetrank.orchestrator.progress.wording import duration
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec

if TYPE_CHECKING:
    from fleetrank.orchestrator.sweep.sweep_session import SweepOutcome

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

EXIT_FAILED_CELLS, EXIT_INTERRUPTED = 3, 130


class Progress(StrEnum):
    """How a running sweep shows its progress."""

    AUTO = "auto"
    PLAIN = "plain"
    JSONL = "jsonl"
    NONE = "none"


SpecPath = Annotated[
    Path, typer.Argument(metavar="SPEC", help="A file, or the name of one in sweeps/.")
]
SweepId = Annotated[str | None, typer.Argument(metavar="ID", help="Sweep (default: the newest).")]
Only = Annotated[
    str | None,
    typer.Option(
        metavar="PATTERN", help="Only cells of this model or platform; * matches anything."
    ),
]
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
    Progress, typer.Option(help="auto: live table on a terminal, plain lines in a pipe.")
]


@app.command()
def schema() -> None:
    """Print the JSON Schema of sweep files, for use in editors."""
    print(json_text(SweepSpec.model_json_schema(), indent=2))


@app.command()
def plan(
    spec: SpecPath, only: Only = None, cluster: Cluster = None, as_json: AsJson = False
) -> None:
    """Show cells, files to build and estimated time; runs nothing."""
    from fleetrank.orchestrator.cli.output.sweep_plan_text import print_plan
    from fleetrank.orchestrator.progress.displays import PlainLines
    from fleetrank.orchestrator.sweep.dispatch_backend import open_dispatch_backend
    from fleetrank.orchestrator.sweep.sweep_setup import plan_sweep, read_spec

    workspace = current().workspace
    specification, _path = read_spec(workspace, spec)
    tell = PlainLines(sys.stderr)
    with open_dispatch_backend(workspace, cluster=cluster, is_inline=False, emit=tell) as backend:
        setup = plan_sweep(workspace, specification, only, backend.fleet, backend.ask_host)
    print_plan(workspace, setup, as_json=as_json)


@app.command()
def run(
    spec: SpecPath,
    only: Only = None,
    inline: Inline = False,
    cluster: Cluster = None,
    trust: Trust = False,
    progress: Display = Progress.AUTO,
) -> None:
    """Export, verify, measure and store everything that the file names."""
    from fleetrank.orchestrator.sweep.sweep_run import run_sweep
    from fleetrank.orchestrator.sweep.sweep_session import RunOptions

    with _display(progress) as subscribers:
        options = RunOptions(
            is_inline=inline, cluster=cluster, is_trusted=trust, subscribers=subscribers
        )
        outcome = run_sweep(current().workspace, spec, options, only=only)
    _conclude(outcome, progress)


@app.command()
def resume(
    sweep_id: SweepId = None,
    inline: Inline = False,
    cluster: Cluster = None,
    trust: Trust = False,
    progress: Display = Progress.AUTO,
) -> None:
    """Measure the pending repeats of a sweep; finished ones are kept."""
    from fleetrank.orchestrator.sweep.sweep_run import resume_sweep
    from fleetrank.orchestrator.sweep.sweep_session import RunOptions

    with _display(progress) as subscribers:
        options = RunOptions(
            is_inline=inline, cluster=cluster, is_trusted=trust, subscribers=subscribers
        )
        outcome = resume_sweep(current().workspace, sweep_id, options)
    _conclude(outcome, progress)


@app.command()
def status(sweep_id: SweepId = None, as_json: AsJson = False) -> None:
    """Show the progress of a sweep, during the run or later."""
    from fleetrank.orchestrator.store.results import ResultStore
    from fleetrank.orchestrator.sweep.sweep_status import read_status

    store = ResultStore(current().workspace.results)
    found = read_status(store, sweep_id or store.newest_sweep())
    if as_json:
        print(json_text(found.as_json(), indent=2))
        return
    print(f"sweep     {found.sweep_id}")
    print(f"state     {found.state}")
    print(f"started   {found.started_utc or '-'}")
    print(f"finished  {found.finished_utc or '-'}")
    print(
        f"repeats   {found.n_ok} measured, {found.n_failed} failed, {found.n_left} left "
        f"of {found.n_repeats}"
    )
    if found.seconds_left is not None:
        print(f"left      about {duration(found.seconds_left)}")
    if found.devices:
        print()
        print_table(found.devices, as_json=False)
    if found.n_overcome:
        print(
            f"earlier   {count_of(found.n_overcome, 'failed try', 'failed tries')} retried "
            "successfully"
        )
    if found.failures:
        print()
        print_table(found.failures, as_json=False)
    if found.state in {"interrupted", "stopped", "failed"}:
        print(f"\nresume with: fleetrank sweep resume {found.sweep_id}")


@contextmanager
def _display(progress: Progress) -> Iterator[list[Subscriber]]:
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


def _conclude(outcome: "SweepOutcome", progress: Progress) -> None:
    """Prints the results folder and the next command, and exits with the exit code."""
    sweep_id, n_missing = outcome.sweep_id, outcome.n_failed + outcome.n_left
    # With JSON progress, standard output holds only the JSON lines.
    stream = sys.stderr if progress is Progress.JSONL else sys.stdout
    if progress is not Progress.NONE:
        store_folder = current().workspace.results / "measurements" / f"sweep_id={sweep_id}"
        print(f"results: {store_folder}", file=stream)
        if n_missing:
            print(f"details: fleetrank sweep status {sweep_id}", file=stream)
        if outcome.is_interrupted:
            print(f"go on:   fleetrank sweep resume {sweep_id}", file=stream)
        else:
            # Without this option the report excludes simulated rows.
            option = " --include-simulated" if outcome.is_unreal else ""
            print(f"next:    fleetrank report build{option}", file=stream)
    if outcome.is_interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    if n_missing:
        raise typer.Exit(EXIT_FAILED_CELLS)
