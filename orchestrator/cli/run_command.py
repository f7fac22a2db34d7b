"""`fleetrank run`: measures one model file, or a named model, without a card and a sweep file."""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from fleetrank.foundation.strict_json import json_text
from fleetrank.foundation.vocabulary import Runtime
from fleetrank.orchestrator.cli.context import current
from fleetrank.orchestrator.cli.output.cell_summary import cell_lines, cell_rows
from fleetrank.orchestrator.cli.output.listing import AsJson
from fleetrank.orchestrator.cli.output.sweep_display import (
    Cluster,
    Display,
    Inline,
    Note,
    Progress,
    Tags,
    Trust,
    conclude,
    result_stream,
    shown_progress,
)
from fleetrank.orchestrator.errors import UsageError

if TYPE_CHECKING:
    from fleetrank.orchestrator.workspace.workspace import Workspace

_DEFAULT_RUNTIME = Runtime.ONNX
_Model = Annotated[
    str, typer.Argument(help="A file (.onnx, .tflite, .pt2, .pte, ...), or the name of a model.")
]
_Devices = Annotated[
    list[str] | None,
    typer.Option("--devices", "--device", help="Devices, separated by commas; may be repeated."),
]
_Repeats = Annotated[
    int, typer.Option(min=1, max=1000, help="Fresh processes; fewer than 5 give no interval.")
]
_Runtimes = Annotated[
    list[Runtime] | None,
    typer.Option("--runtime", help="Runtime of a named model; may be repeated. A file has one."),
]
_Axes = Annotated[
    list[str] | None,
    typer.Option("--axis", metavar="NAME=SIZE", help="Size of a free axis; may be repeated."),
]
_Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="NAME=RULE",
        help="Values of an input of a file: normal, ids:30522, constant:1, range:0,255 or "
        "file:values.npy; may be repeated.",
    ),
]


_Workloads = Annotated[
    list[str] | None,
    typer.Option(
        "--workload",
        help="What one inference of a language model does, such as decode@128; may be repeated.",
    ),
]


def run(
    model: _Model,
    *,
    devices: _Devices = None,
    repeats: _Repeats = 5,
    runtime: _Runtimes = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads inside one operator.")] = 1,
    workload: _Workloads = None,
    axis: _Axes = None,
    inputs: _Inputs = None,
    inline: Inline = False,
    cluster: Cluster = None,
    trust: Trust = False,
    tag: Tags = None,
    note: Note = None,
    progress: Display = Progress.AUTO,
    as_json: AsJson = False,
) -> None:
    """Measure one model file or named model and print its figures.

    The result is a sweep like any other. A file gets a card in cards/, which you can complete.
    """
    from fleetrank.orchestrator.store.tagging import new_tags
    from fleetrank.orchestrator.sweep.made_spec import made_spec, runtimes_of, workloads_for
    from fleetrank.orchestrator.sweep.sweep_run import start_sweep
    from fleetrank.orchestrator.sweep.sweep_session import RunOptions
    from fleetrank.orchestrator.workspace.input_rules import axis_sizes
    from fleetrank.orchestrator.workspace.model_argument import model_named

    workspace, tags = current().workspace, new_tags(tag, note)
    sizes = axis_sizes(axis or ())
    name = model_named(workspace, model, inputs or ())
    _check_axes(workspace, name, sizes)
    content = {
        "name": "run",
        "models": [name],
        "devices": _split(devices or ["local-cpu"]),
        "runtimes": [one.value for one in runtime or ()]
        or runtimes_of(workspace, [name], _DEFAULT_RUNTIME),
        "threads": [threads],
        "batch": sizes.pop("batch", [1]),
        "axes": sizes,
        "repeats": repeats,
        **workloads_for(workspace, [name], workload or ()),
    }
    if as_json:
        progress = Progress.NONE
    with shown_progress(progress) as subscribers:
        options = RunOptions(
            is_inline=inline,
            cluster=cluster,
            is_trusted=trust,
            subscribers=subscribers,
            tags=tags,
        )
        outcome = start_sweep(workspace, made_spec(content, sys.argv[1:]), options)
    stream = None if as_json else result_stream(progress)
    _print_cells(workspace, outcome.sweep_id, name, stream)
    conclude(outcome, options, stream)


def _check_axes(workspace: "Workspace", name: str, sizes: Mapping[str, Sequence[int]]) -> None:
    """Checks that every free axis has a size and that every given axis exists."""
    from fleetrank.models.cards.input_size import INPUT_SIZE, takes_images
    from fleetrank.models.cards.inputs import BATCH, axis_names
    from fleetrank.models.cards.zoo import load_cards

    card = load_cards(workspace.cards).find(name)
    known = axis_names(card.inputs, takes_tokens=bool(card.workloads))
    free = (BATCH, *known, *((INPUT_SIZE,) if takes_images(card) else ()))
    if unknown := [one for one in sizes if one not in free]:
        raise UsageError(
            f"{name} has no free axis '{unknown[0]}'", f"its free axes: {', '.join(free)}"
        )
    if missing := [one for one in known if one not in sizes and one not in dict(card.axes)]:
        wanted = " ".join(f"--axis {one}=128" for one in missing)
        raise UsageError(
            f"no size is given for the free axis {', '.join(missing)} of {name}",
            f"add {wanted}, with your sizes",
        )


def _print_cells(workspace: "Workspace", sweep_id: str, name: str, stream: TextIO | None) -> None:
    """Prints the figures as text; without a stream as JSON."""
    rows = cell_rows(workspace.results, sweep_id)
    if stream is None:
        print(json_text({"sweep_id": sweep_id, "model": name, "cells": rows}, indent=2))
        return
    print(f"\nmodel      {name}", file=stream)
    for row in rows:
        print("\n".join(cell_lines(row)) + "\n", file=stream)


def _split(texts: Sequence[str]) -> list[str]:
    names = [name.strip() for text in texts for name in text.split(",")]
    return [name for name in names if name]
