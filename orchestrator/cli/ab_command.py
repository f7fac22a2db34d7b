"""`fleetrank ab`: two models take turns on one device; is one of them slower?"""

import sys
from typing import Annotated

import typer

from fleetrank.foundation.strict_json import json_text
from fleetrank.foundation.vocabulary import Runtime
from fleetrank.orchestrator.cli.context import current
from fleetrank.orchestrator.cli.output.listing import AsJson
from fleetrank.orchestrator.cli.output.sweep_display import (
    EXIT_FAILED_CELLS,
    EXIT_INTERRUPTED,
    Inline,
    Progress,
    Trust,
    shown_progress,
)
from fleetrank.orchestrator.cli.report.report_compare import EXIT_SLOWER, share
from fleetrank.orchestrator.errors import UsageError

_Model = Annotated[str, typer.Argument(help="A model file, or the name of a model.")]


def ab(
    a: _Model,
    b: _Model,
    *,
    device: Annotated[
        str, typer.Option(help="Device that can hold both models at once.")
    ] = "local-cpu",
    rounds: Annotated[
        int, typer.Option(min=1, max=1000, help="Fresh processes of each model.")
    ] = 10,
    runtime: Annotated[
        Runtime, typer.Option(help="Runtime of a named model; a file has its own.")
    ] = Runtime.ONNX,
    threads: Annotated[int, typer.Option(min=1, help="Threads inside one operator.")] = 1,
    workload: Annotated[
        str | None,
        typer.Option(help="What one inference of a language model does, such as decode@128."),
    ] = None,
    margin: Annotated[
        float,
        typer.Option(parser=share, metavar="SHARE", help="Largest change of no interest, as 2%."),
    ] = 0.02,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of order and inputs.")] = 0,
    inline: Inline = False,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Compare two models that take turns in blocks on one device.

    Exit code 5: B is slower by the margin or more. The measurements are a sweep like any other.
    """
    from fleetrank.analysis.arrays.equivalence import Limits
    from fleetrank.analysis.comparison.changes import DEFAULT_ALPHA, Verdict
    from fleetrank.analysis.comparison.rounds_comparison import compare_rounds, rounds_sentences
    from fleetrank.analysis.stored.columns import ORIGINS
    from fleetrank.analysis.stored.load import load_measurements
    from fleetrank.orchestrator.sweep.made_spec import made_spec, one_workload, runtimes_of
    from fleetrank.orchestrator.sweep.sweep_run import start_sweep
    from fleetrank.orchestrator.sweep.sweep_session import RunOptions
    from fleetrank.orchestrator.workspace.model_argument import model_named

    workspace = current().workspace
    models = model_named(workspace, a), model_named(workspace, b)
    if models[0] == models[1]:
        raise UsageError(f"{a} and {b} are the same model", "give two different models")
    spec = {
        "name": "ab",
        "models": list(models),
        "devices": [device],
        "runtimes": runtimes_of(workspace, models, runtime),
        "threads": threads,
        "repeats": rounds,
        "seed": seed,
        "rounds": {"cells": 2, "mix_platforms": True},
        **one_workload(workspace, models, workload),
    }
    with shown_progress(Progress.NONE if as_json else Progress.AUTO) as subscribers:
        options = RunOptions(is_inline=inline, is_trusted=trust, subscribers=subscribers)
        outcome = start_sweep(workspace, made_spec(spec, sys.argv[1:]), options)
    if outcome.is_interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    limits = Limits(margin=margin, alpha=DEFAULT_ALPHA)
    rows = load_measurements(workspace.results, sweep=outcome.sweep_id, origins=ORIGINS)
    found = compare_rounds(rows, models, limits)
    if as_json:
        print(json_text({"sweep_id": outcome.sweep_id, **found.as_json()}, indent=2))
    else:
        print("\n".join(("", *rounds_sentences(found))))
    if outcome.n_failed:
        print(f"details: fleetrank sweep status {outcome.sweep_id}", file=sys.stderr)
        raise typer.Exit(EXIT_FAILED_CELLS)
    if found.verdict is Verdict.SLOWER:
        raise typer.Exit(EXIT_SLOWER)
