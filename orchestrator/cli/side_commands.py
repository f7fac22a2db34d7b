"""`fleetrank profile` and `fleetrank replicas`: a made sweep with a side pass, and its table."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from fleetrank.foundation.visible_text import shortened
from fleetrank.foundation.vocabulary import Runtime
from fleetrank.orchestrator.cli.output.listing import AsJson
from fleetrank.orchestrator.cli.output.sweep_display import (
    EXIT_FAILED_CELLS,
    EXIT_INTERRUPTED,
    Cluster,
    Display,
    Inline,
    Progress,
    Trust,
    shown_progress,
)
from fleetrank.orchestrator.cli.output.table_view import TableView, with_view
from fleetrank.orchestrator.errors import NothingToDoError, UsageError

if TYPE_CHECKING:
    from fleetrank.orchestrator.identity.cells import Plan
    from fleetrank.orchestrator.sweep.side_pass import SideWork
    from fleetrank.orchestrator.sweep.sweep_outcome import SweepOutcome
    from fleetrank.orchestrator.sweep.sweep_run import WrittenSpec
    from fleetrank.orchestrator.sweep.sweep_setup import Setup
    from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec

_MOST_DIGITS = 10
_Models = Annotated[
    list[str], typer.Argument(help="Names of models, or files (.onnx, .pt2, .pte, ...).")
]
_Devices = Annotated[list[str] | None, typer.Option("--device", help="May be repeated.")]
_Runtimes = Annotated[
    list[Runtime] | None,
    typer.Option("--runtime", help="Runtime of named models; may be repeated. A file has one."),
]
_Workload = Annotated[str | None, typer.Option(help="Of language models, such as decode@128.")]
_Threads = Annotated[int, typer.Option(min=1, help="Threads inside one operator.")]
_Split = Annotated[str, typer.Option(metavar="WORD", help="module or operator.")]
_Repeats = Annotated[
    int, typer.Option(min=1, max=1000, help="Fresh processes; fewer than 5 give no interval.")
]


@with_view
def profile(
    models: _Models,
    *,
    device: _Devices = None,
    runtime: _Runtimes = None,
    backend: Annotated[
        str | None,
        typer.Option(help="Execution provider or delegate of each --runtime, such as builtin."),
    ] = None,
    workload: _Workload = None,
    depth: Annotated[
        int | None, typer.Option(min=1, help="Parts of a module's path that name a component.")
    ] = None,
    split: _Split = "module",
    repeats: _Repeats = 5,
    threads: _Threads = 1,
    inline: Inline = False,
    cluster: Cluster = None,
    trust: Trust = False,
    progress: Display = Progress.AUTO,
    as_json: AsJson = False,
    view: TableView,
) -> None:
    """Find out which part of a model takes the time.

    Measures the latency first and profiles afterwards, in processes of their own. The result is a
    sweep; `fleetrank report show components` shows it again.
    """
    how = _How(inline=inline, cluster=cluster, trust=trust, progress=progress, as_json=as_json)
    rest = {
        "name": "profile",
        "threads": [threads],
        "repeats": repeats,
        "profile": True,
        "backends": _backends(backend, runtime),
    }
    spec = _made(models, device, runtime, workload, rest)
    if cluster is None:
        _refuse_profiles(spec.spec)
    outcome = _measured(spec, how)
    asked = {"split": split, **({} if depth is None else {"depth": str(depth)})}
    _show("components", outcome.sweep_id, asked, how, view)
    if outcome.n_missing or outcome.n_profile_failed:
        raise typer.Exit(EXIT_FAILED_CELLS)


@with_view
def replicas(
    models: _Models,
    *,
    device: _Devices = None,
    runtime: _Runtimes = None,
    workload: _Workload = None,
    processes: Annotated[
        str, typer.Option("--replicas", metavar="N,N,...", help="Processes of a set.")
    ] = "1,2,4",
    seconds: Annotated[
        float, typer.Option(min=0.1, help="Time that the processes of a set run back to back.")
    ] = 10.0,
    batch: Annotated[int, typer.Option(min=1, help="Samples in one inference.")] = 1,
    threads: _Threads = 1,
    repeats: Annotated[
        int, typer.Option(min=1, max=1000, help="Sets; fewer than 3 give no interval.")
    ] = 5,
    inline: Inline = False,
    cluster: Cluster = None,
    trust: Trust = False,
    progress: Display = Progress.AUTO,
    as_json: AsJson = False,
    view: TableView,
) -> None:
    """Run a model in several processes at once, and compare them with one process.

    Measures the latency of one process first. Then the processes of each set load the model, start
    together and run for the given time. The result is a sweep; `fleetrank report show replicas`
    shows it again.
    """
    from fleetrank.orchestrator.workspace.sweep_spec import LimitsSpec

    how = _How(inline=inline, cluster=cluster, trust=trust, progress=progress, as_json=as_json)
    rest = {
        "name": "replicas",
        "batch": [batch],
        "threads": [threads],
        "repeats": repeats,
        "replicas": {"processes": _numbers(processes), "run_s": seconds},
        "limits": {"timeout_s": LimitsSpec().timeout_s + seconds},
    }
    spec = _made(models, device, runtime, workload, rest)
    if cluster is None:
        _refuse_without_sets(spec.spec)
    outcome = _measured(spec, how)
    _show("replicas", outcome.sweep_id, {}, how, view)
    if outcome.n_missing or outcome.n_sets_failed:
        raise typer.Exit(EXIT_FAILED_CELLS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _How:
    """The options of both commands about how they run and print."""

    inline: bool
    cluster: str | None
    trust: bool
    progress: Progress
    as_json: bool


def _made(
    models: Sequence[str],
    device: Sequence[str] | None,
    runtime: Sequence[Runtime] | None,
    workload: str | None,
    rest: Mapping[str, object],
) -> "WrittenSpec":
    """The specification of the sweep."""
    from fleetrank.orchestrator.cli.context import current
    from fleetrank.orchestrator.sweep.made_spec import made_spec, one_workload, runtimes_of
    from fleetrank.orchestrator.workspace.model_argument import model_named

    workspace = current().workspace
    names = [model_named(workspace, model) for model in models]
    content = {
        **rest,
        "models": names,
        "devices": device or ["local-cpu"],
        "runtimes": [one.value for one in runtime or ()]
        or runtimes_of(workspace, names, Runtime.ONNX),
        **one_workload(workspace, names, workload),
    }
    return made_spec(content, sys.argv[1:])


def _numbers(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdecimal() and len(word) < _MOST_DIGITS for word in words):
        raise UsageError(f"--replicas '{shortened(text)}' is not a list of numbers", "give 1,2,4")
    return [int(word) for word in words]


def _backends(backend: str | None, runtime: Sequence[Runtime] | None) -> dict[str, list[str]]:
    if backend is not None and not runtime:
        raise UsageError(f"--backend {shortened(backend)} is of no runtime", "give --runtime too")
    return {} if backend is None else {one.value: [backend] for one in runtime or ()}


def _refuse_profiles(spec: "SweepSpec") -> None:
    """Ends before anything is measured if nothing can be profiled.

    Raises:
        NothingToDoError: no cell of the sweep can be profiled; with the reasons.
    """
    from fleetrank.orchestrator.sweep.profile_pass import profiles_of

    if (reasons := _why_none(spec, profiles_of)) is not None:
        raise NothingToDoError(
            f"nothing can be profiled: {reasons}", "name another device, runtime or workload"
        )


def _refuse_without_sets(spec: "SweepSpec") -> None:
    """Ends before anything is measured if no set can run.

    Raises:
        NothingToDoError: no device of the sweep can run several processes; with the reasons.
    """
    from fleetrank.orchestrator.sweep.replica_pass import sets_of

    if (reasons := _why_none(spec, sets_of)) is not None:
        raise NothingToDoError(
            f"no set of processes can run: {reasons}",
            "name another device, model, workload or number of processes",
        )


def _why_none(spec: "SweepSpec", side_of: "Callable[[Setup, Plan], SideWork]") -> str | None:
    """Why a side pass has no cell; `None` if it has one."""
    from fleetrank.orchestrator.cli.context import current
    from fleetrank.orchestrator.sweep.sweep_setup import plan_sweep

    setup = plan_sweep(current().workspace, spec, None)
    side = side_of(setup, setup.plan).plan
    return None if side.cells else "; ".join(dict.fromkeys(one.reason for one in side.skipped))


def _measured(spec: "WrittenSpec", how: _How) -> "SweepOutcome":
    """Runs the sweep; a stop ends the command."""
    from fleetrank.orchestrator.cli.context import current
    from fleetrank.orchestrator.sweep.sweep_run import start_sweep
    from fleetrank.orchestrator.sweep.sweep_session import RunOptions

    with shown_progress(Progress.NONE if how.as_json else how.progress) as subscribers:
        options = RunOptions(
            is_inline=how.inline,
            cluster=how.cluster,
            is_trusted=how.trust,
            subscribers=subscribers,
        )
        outcome = start_sweep(current().workspace, spec, options)
    if outcome.is_interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    return outcome


def _show(
    table: str, sweep_id: str, settings: Mapping[str, str], how: _How, view: TableView
) -> None:
    """Prints a table of the sweep."""
    from fleetrank.orchestrator.cli.report.report_command import print_in_form, selected_table
    from fleetrank.orchestrator.workspace.selectors import Selectors, TableFormat

    selectors = Selectors.model_validate(
        {
            "sweep": sweep_id,
            "include_simulated": True,
            "set": tuple(f"{name}={value}" for name, value in settings.items()),
        }
    )
    print_in_form(
        selected_table(table, selectors, now=True),
        TableFormat.JSON if how.as_json else TableFormat.TABLE,
        is_explained=False,
        view=view,
    )
