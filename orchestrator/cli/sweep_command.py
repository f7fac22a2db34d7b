"""`fleetrank sweep`: plan, run, watch and resume sweeps."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetrank.analysis.stored.sweep_record import SweepState
from fleetrank.foundation.strict_json import json_text
from fleetrank.foundation.vocabulary import ErrorKind
from fleetrank.foundation.wording import count_of, duration, with_flags
from fleetrank.foundation.workload import IMAGE
from fleetrank.orchestrator.cli.context import current, readable_workspace, settle_workspace
from fleetrank.orchestrator.cli.listing import AsJson, print_table
from fleetrank.orchestrator.cli.stored_sweep import SWEEP_NAMES, stored_sweep
from fleetrank.orchestrator.cli.sweep_display import (
    conclude,
    fleetrank_command,
    result_stream,
    shown_progress,
)
from fleetrank.orchestrator.cli.sweep_options import (
    Cluster,
    NewSweepOptions,
    SweepOptions,
    with_sweep_options,
)
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.fleet_state import lines_of_status, listed
from fleetrank.orchestrator.progress_events import decided
from fleetrank.orchestrator.progress_words import counted_from_one, printable
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec

if TYPE_CHECKING:
    from fleetrank.orchestrator.sweep.sweep_status import SweepStatus

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

SPEC = typer.Argument(metavar="SPEC", help="A file, or the name of one in sweeps/.")
Stored = Annotated[
    str | None,
    typer.Argument(metavar="SWEEP", help=f"{SWEEP_NAMES} (default: latest)."),
]
Only = Annotated[
    str | None,
    typer.Option(
        metavar="PATTERN", help="Only cells of this model or platform; * matches anything."
    ),
]
RetryFailed = Annotated[
    bool,
    typer.Option("--retry-failed", help="Try failed repeats again too; their rows are kept."),
]
RepeatNoisy = Annotated[
    bool,
    typer.Option("--repeat-noisy", help="Also measure the disturbed repeats of noisy cells again."),
]


@app.command()
def plan(
    spec: Annotated[Path | None, SPEC] = None,
    *,
    only: Only = None,
    cluster: Cluster = None,
    schema: Annotated[
        bool,
        typer.Option(
            "--schema", help="Print the JSON Schema of sweep files instead, for use in editors."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show cells, files to build and estimated time; runs nothing."""
    if schema:
        print(json_text(SweepSpec.model_json_schema(), indent=2))
        return
    from fleetrank.orchestrator.cli.sweep_plan_text import print_plan
    from fleetrank.orchestrator.progress import PlainLines
    from fleetrank.orchestrator.sweep.dispatch_backend import open_dispatch_backend
    from fleetrank.orchestrator.sweep.sweep_argument import read_spec
    from fleetrank.orchestrator.sweep.sweep_setup import plan_sweep

    if spec is None:
        raise UsageError("no sweep is named", "give a file, or the name of one in sweeps/")
    workspace = settle_workspace()
    specification, _path = read_spec(workspace, spec)
    tell = PlainLines(sys.stderr)
    with open_dispatch_backend(workspace, cluster=cluster, is_inline=False, emit=tell) as backend:
        setup = plan_sweep(workspace, specification, only, backend.fleet, backend.ask_host)
    print_plan(workspace, setup, as_json=as_json, starts_ray=backend.starts_ray)


@app.command()
@with_sweep_options(NewSweepOptions)
def run(
    spec: Annotated[Path, SPEC],
    *,
    only: Only = None,
    options: NewSweepOptions,
) -> None:
    """Export, verify, measure and store everything that the file names."""
    from fleetrank.orchestrator.sweep.sweep_run import run_sweep

    with shown_progress(options.progress) as subscribers:
        run_options = options.run_options(subscribers)
        outcome = run_sweep(settle_workspace(), spec, run_options, only=only)
    conclude(outcome, run_options, result_stream(options.progress))


@app.command()
@with_sweep_options(SweepOptions)
def resume(
    sweep: Stored = None,
    *,
    retry_failed: RetryFailed = False,
    repeat_noisy: RepeatNoisy = False,
    only: Only = None,
    hosts: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="HOST", help="Fail unless this host answers; repeatable."),
    ] = None,
    options: SweepOptions,
) -> None:
    """Measure the pending repeats of a sweep; finished ones are kept."""
    from fleetrank.orchestrator.store.results import ResultStore
    from fleetrank.orchestrator.sweep.sweep_run import resume_sweep

    workspace = current().workspace
    sweep_id = stored_sweep(ResultStore(workspace.results), sweep)
    with shown_progress(options.progress) as subscribers:
        run_options = replace(
            options.run_options(subscribers),
            retries_failed=retry_failed,
            repeats_noisy=repeat_noisy,
            restricted_to=only,
            needed_hosts=hosts or (),
        )
        outcome = resume_sweep(workspace, sweep_id, run_options)
    conclude(outcome, run_options, result_stream(options.progress))


@app.command()
def status(
    sweep: Stored = None,
    *,
    tag: Annotated[
        list[str] | None, typer.Option(metavar="TAG", help="Tag the sweep; may be repeated.")
    ] = None,
    untag: Annotated[
        list[str] | None, typer.Option(metavar="TAG", help="Remove this tag; may be repeated.")
    ] = None,
    note: Annotated[
        str | None, typer.Option(help="Replace the note, one line; empty removes it.")
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="List every device of a large fleet.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the progress of a sweep, or change its tags.

    During the run or later. Other commands select by tag with `--sweep tag:NAME`. Rows do not
    change.
    """
    from fleetrank.orchestrator.store.results import ResultStore
    from fleetrank.orchestrator.store.tagging import change_tags
    from fleetrank.orchestrator.sweep.sweep_status import read_status

    store = ResultStore(readable_workspace().results)
    sweep_id = stored_sweep(store, sweep)
    if tag or untag or note is not None:
        change_tags(store, sweep_id, added=tag or (), removed=untag or (), note=note)
    found = read_status(store, sweep_id)
    if as_json:
        print(json_text(asdict(found), indent=2))
    else:
        _print_status(found, show_all=show_all)


def _print_status(found: "SweepStatus", *, show_all: bool) -> None:
    print(f"sweep     {found.sweep_id}")
    print(f"state     {found.state}")
    print(f"started   {found.started_utc or '-'}")
    print(f"finished  {found.finished_utc or '-'}")
    print(
        f"repeats   {found.n_ok} measured, {found.n_failed} failed, {found.n_left} left "
        f"of {found.n_repeats}"
    )
    for made in found.decisions:
        print(f"decided   {printable(decided(made))}")
    if found.tags:
        print(f"tags      {', '.join(found.tags)}")
    if found.note:
        print(f"note      {found.note}")
    if found.seconds_left is not None:
        print(f"left      about {duration(found.seconds_left)}")
    if found.devices:
        print()
        _print_devices(found.devices, show_all=show_all)
    if found.n_overcome:
        print(
            f"earlier   {count_of(found.n_overcome, 'failed try', 'failed tries')} retried "
            "successfully"
        )
    if found.failures:
        print()
        print_table(folded(found.failures), as_json=False)
    resume_words = ["sweep", "resume", found.sweep_id]
    if found.state in {"interrupted", "stopped", "failed"}:
        print(f"\nresume with: {fleetrank_command(*resume_words)}")
    if found.n_failed and found.state != SweepState.RUNNING:
        print(f"\nretry what failed with: {fleetrank_command(*resume_words, '--retry-failed')}")


def _print_devices(devices: Sequence[Mapping[str, object]], *, show_all: bool) -> None:
    """Each device; of a large fleet the numbers, and the devices that a person should look at."""
    shown = devices if show_all else listed(devices)
    if n_more := len(devices) - len(shown):
        print(*map(printable, lines_of_status(devices)), sep="\n")
    if shown:
        print_table([_doing(device) for device in shown], as_json=False)
    if n_more:
        print(f"... and {n_more:,} more: `--json` or `--all`")
    for device in devices:
        if isinstance(switched := device["power"], list):
            print(*map(printable, switched), sep="\n", end="\n" if switched else "")


def _doing(device: Mapping[str, object]) -> Mapping[str, object]:
    """A device for a person: what it waits for takes the place of what it runs."""
    last = device["last"]
    latency = last["latency_ms"] if isinstance(last, Mapping) else None
    hidden = {"state", "waits", "reason", "waited_s", "power", "last"}
    shown = {name: value for name, value in device.items() if name not in hidden}
    return shown | {"running": device["waits"] or device["running"], "last_ms": latency}


def folded(failures: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """The failures for a person, with one row for all repeats that a failed export ended."""
    rows: dict[object, Mapping[str, object]] = {}
    for number, stored in enumerate(failures):
        row = counted_from_one(stored)
        row["remedy"] = row["remedy"] and with_flags(str(row["remedy"]))
        is_export = row["error"] in {ErrorKind.EXPORT_FAILED, ErrorKind.VERIFICATION_FAILED}
        key = (row["model"], row["workload"], row["message"]) if is_export else number
        rows[key] = {**row, "platform": "all", "repeat": None} if is_export else row
    found = list(rows.values())
    if all(row["workload"] in {None, str(IMAGE)} for row in found):
        return [{name: row[name] for name in row if name != "workload"} for row in found]
    return found
